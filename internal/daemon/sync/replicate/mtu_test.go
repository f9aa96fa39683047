// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"imbang/internal/daemon/sync/own"
)

// Datagrams fit the device by which the other directors are reached, also if the
// configuration does not name one.
func TestMTUOfTheRoute(t *testing.T) {
	a, b := twoNodes(t, few)
	other := netip.AddrPortFrom(b.addr, own.Port)
	for _, c := range []struct {
		mtu, want int
		to        []netip.AddrPort
	}{
		{1500, 1500, []netip.AddrPort{other}},
		{1400, 1400, []netip.AddrPort{other}},
		{9000, 9000, []netip.AddrPort{other}},
		{600, leastMTU, []netip.AddrPort{other}},
		{9000, 9000, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8790"), other}},
		{9000, unknownMTU, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:8790")}}, // no route
	} {
		got := 0
		a.must(a.ns.Do(func() error {
			config := Config{Role: Master, Listen: netip.AddrPortFrom(a.addr, own.Port), To: c.to, KeyFile: a.key}
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMTU(link, c.mtu); err != nil {
				return err
			}
			s, err := openSocket(&config)
			if err != nil {
				return err
			}
			got = s.max + headers4
			return s.conn.Close()
		}))
		if got != c.want {
			t.Errorf("a device of MTU %d: datagrams are for %d to %v, want %d", c.mtu, got, c.to, c.want)
		}
	}
}
