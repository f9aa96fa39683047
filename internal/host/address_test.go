// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// An address that was added is the host's at once, for routing, too.
func TestAddedAddressIsLocal(t *testing.T) {
	ns, _ := withDevice(t)
	for i := range 100 {
		a := netip.MustParseAddr(fmt.Sprintf("fd00:9::1:%x", i))
		must(t, ns.AddAddresses("eth0", netip.PrefixFrom(a, 64)))
		routes, err := ns.handle.RouteGet(a.AsSlice())
		must(t, err)
		if len(routes) != 1 || routes[0].Type != unix.RTN_LOCAL {
			t.Fatalf("%s: %v", a, routes)
		}
	}
}
