// SPDX-License-Identifier: Apache-2.0

package check

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"imbang/internal/testenv"
)

// A server that this host has no way to fails its checks, whatever the kernel says about that: no
// client reaches it through this host.
func TestNoWay(t *testing.T) {
	ns := testenv.Namespace(t, "way")
	for _, args := range []string{
		"link set lo up", "link add d0 type veth peer name d1", "address add 192.0.2.1/24 dev d0", "address add 2001:db8::1/64 dev d0 nodad",
		"route add unreachable 198.51.100.1", "route add blackhole 198.51.100.2", "route add prohibit 198.51.100.3",
		"route add unreachable 2001:db8:1::1", "route add blackhole 2001:db8:1::2", "route add prohibit 2001:db8:1::3",
	} {
		if err := ns.Do(func() error { return exec.Command("ip", strings.Fields(args)...).Run() }); err != nil {
			t.Fatalf("ip %s: %v", args, err)
		}
	}
	for _, to := range []string{
		"198.51.100.1", "198.51.100.2", "198.51.100.3", "203.0.113.1", // no route
		"192.0.2.2", // the device is down
		"2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3", "2001:db8:2::1", "2001:db8::2",
	} {
		for kind, s := range map[string]Spec{"tcp": &TCP{}, "http": &HTTP{}, "udp": &UDP{}, "icmp": &ICMP{}, "agent": &Agent{}} {
			var r Result
			if err := ns.Do(func() error { r = runWithin(t, brief, s, net.JoinHostPort(to, "80")); return nil }); err != nil {
				t.Fatal(err)
			}
			if r.OK || r.Inconclusive {
				t.Errorf("%s to %s: %+v", kind, to, r)
			}
		}
	}
}
