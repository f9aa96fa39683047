// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"strings"
	"testing"

	"imbang/internal/model"
)

// Listings show the weight that the kernel schedules by; a save has what the user
// set, and an edit sets that and leaves the health.
func TestWeightsByHealth(t *testing.T) {
	f := busyTable()
	f.services[0].Servers[0].Weight, f.services[0].Servers[0].Forward = 6, model.Tunnel
	ipvsadm := func(args string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if status := run(strings.Fields(args), nil, &stdout, &stderr, f.open, nil, testNames()); status != 0 || stderr.Len() != 0 {
			t.Errorf("%s: status %d, stderr %q", args, status, &stderr)
		}
		return strings.Join(strings.Fields(stdout.String()), " ")
	}
	want := func(args, part string) {
		t.Helper()
		if got := ipvsadm(args); !strings.Contains(got, part) {
			t.Errorf("%s: %q, want %q", args, got, part)
		}
	}
	for _, c := range []struct {
		health    model.Health
		effective string
	}{{model.Up, "6"}, {50 * model.Percent, "3"}, {model.Down, "0"}} {
		f.services[0].Servers[0].Health = c.health
		want("-Ln", "Tunnel "+c.effective+" ")
		want("-Ln --persistent-conn", "172.16.0.2:8080 "+c.effective+" 3 ")
		want("-Ln --tun-info", "Tunnel ipip "+c.effective+" ")
		want("-Sn", "-r 172.16.0.2:8080 -i -w 6 ")
	}
	ipvsadm("-e -t 10.20.0.1:80 -r 172.16.0.2:8080 -m -w 9")
	want("-Ln", "Masq 0 ")
	want("-Sn", "-m -w 9")
}
