// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/l7/carry"
)

// printLayer7 is HAProxy and its listeners; backends are printed as services are.
func printLayer7(w io.Writer, p *api.Proxy, now time.Time) {
	if p.State == "none" { // its supervisor alone knows the counts, and whether HAProxy runs
		fmt.Fprintf(w, "\nHAProxy %s\timbang proxy does not run\n", p.Version)
	} else {
		fmt.Fprintf(w, "\nHAProxy %s\t%s\t%d starts, %d reloads\n", p.Version, p.State, p.Starts, p.Reloads)
	}
	if p.Error != "" { // the alarm leaves out what HAProxy says
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(p.Error, "\n", "\n  "))
	}
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
		state := fmt.Sprintf("%d connections, %d requests", l.Connections, l.Requests)
		if l.NotServed {
			state = "NOT SERVED: no usable certificate"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", l.Name, scheme, strings.Join(l.Bind, " "), state)
	}
	for _, c := range p.Certificates {
		fmt.Fprintf(w, "  certificate %s: %s\n", c.File, c.Fingerprint)
		switch left := c.Expires.Sub(now); {
		case c.Expires.IsZero():
		case left <= 0:
			fmt.Fprintf(w, "  EXPIRED  certificate %s, %s ago\n", c.File, carry.Days(-left))
		case left < carry.RenewTime:
			fmt.Fprintf(w, "  certificate %s expires in %s\n", c.File, carry.Days(left))
		}
	}
}
