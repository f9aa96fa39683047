// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"testing"

	"imbang/internal/command"
)

// A size out of bounds is refused with the name of its flag, before devices are looked up.
func TestAttachRefusesSizes(t *testing.T) {
	for flag, want := range map[string]string{
		"--max-connections=4294967295": "--max-connections 4294967295: want at most 6291456",
		"--max-connections=4294967296": "--max-connections 4294967296: want at most 6291456",
		"--max-services=1048577":       "--max-services 1048577: want at most 1048576",
		"--max-servers=16777215":       "--max-servers 16777215: want at most 16777214",
		"--max-servers=-1":             "--max-servers -1: want a number, at most 16777214",
		"--max-services=many":          "--max-services many: want a number, at most 1048576",
	} {
		var stderr strings.Builder
		root := command.NewRoot("p", "", "", newAttachCommand())
		status := command.Execute(t.Context(), root, []string{"attach", "--client-dev", "none", "--server-dev", "none", flag}, nil, io.Discard, &stderr)
		if got := strings.TrimSpace(stderr.String()); status != command.StatusUsage || got != "p: "+want {
			t.Errorf("%s: status %d, %q; want %q", flag, status, got, want)
		}
	}
}
