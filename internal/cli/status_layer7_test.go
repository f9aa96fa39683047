// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/api"
)

// Without imbang proxy the status says so, whether HAProxy runs or not, and has no counts.
func TestLayer7WithoutSupervisor(t *testing.T) {
	for want, p := range map[string]api.Proxy{
		"\nHAProxy 2.6.12\timbang proxy does not run\n":    {Version: "2.6.12", State: "none", Reloads: 4},
		"\nHAProxy 2.6.12\trunning\t1 starts, 4 reloads\n": {Version: "2.6.12", State: "running", Starts: 1, Reloads: 4},
	} {
		var out strings.Builder
		if printLayer7(&out, &p, time.Now()); out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
