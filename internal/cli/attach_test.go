// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"imbang/internal/command"
)

// The flags of devices are completed by devices.
func TestCompletesDevices(t *testing.T) {
	for _, args := range [][]string{{"attach", "--client-dev"}, {"attach", "--server-dev"}, {"doctor", "--client-dev"}, {"doctor", "--server-dev"}} {
		var out, errs strings.Builder
		if status := command.Execute(t.Context(), newRootCommand(), append(append([]string{"__complete"}, args...), ""), nil, &out, &errs); status != command.StatusOK || !strings.HasPrefix(out.String()+"\n", "lo\n") || !strings.Contains(out.String(), ":4\n") {
			t.Errorf("%q: status %d, %q, %q", args, status, out.String(), errs.String())
		}
	}
}
