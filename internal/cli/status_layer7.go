// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"imbang/internal/daemon/api"
)

// printLayer7 is HAProxy and its listeners; backends are printed as services are.
func printLayer7(w io.Writer, p *api.Proxy) {
	fmt.Fprintf(w, "\nHAProxy %s\t%s\t%d starts, %d reloads\n", p.Version, p.State, p.Starts, p.Reloads)
	if p.Drain != nil {
		fmt.Fprintf(w, "  DRAINING  %s\n", orderText("drain", p.Drain))
	}
	if len(p.Old) > 0 {
		fmt.Fprintf(w, "  workers of earlier configurations: %s\n", numbers(p.Old))
	}
	for _, l := range p.Listeners {
		scheme := "http"
		if l.TLS {
			scheme = "https"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d connections, %d requests\n", l.Name, scheme, strings.Join(l.Bind, " "), l.Connections, l.Requests)
	}
	for _, c := range p.Certificates {
		fmt.Fprintf(w, "  certificate %s: %s\n", c.File, c.Fingerprint)
	}
}
