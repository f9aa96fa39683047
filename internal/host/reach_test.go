// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A route of each type is an answer, not an error, and new addresses inside of it become own ones.
func TestRouteTypes(t *testing.T) {
	ns, _ := withDevice(t)
	must(t, ns.AddAddresses("eth0", prefixes("10.9.0.1/24", "fd00:9::1/64")...), ns.Up("lo"))
	index, err := ns.LinkIndex("eth0")
	must(t, err)
	for kind := RouteType(unix.RTN_UNICAST); kind <= unix.RTN_THROW; kind++ {
		want := Reach{Route: kind}
		route := netlink.Route{Type: int(kind), LinkIndex: index, Scope: netlink.SCOPE_LINK}
		switch kind {
		case UnicastRoute:
			want.Device = "eth0"
		case LocalRoute:
			route.Scope = netlink.SCOPE_HOST
		case BlackholeRoute, UnreachableRoute, ProhibitRoute, unix.RTN_THROW:
			route.LinkIndex = 0
		}
		if kind == unix.RTN_THROW {
			want.Route = NoRoute
		}
		for _, to := range prefixes("10.30.0.0/24", "fd00:30::/64") {
			route.Dst = ipNet(to)
			a := to.Addr().Next()
			must(t, ns.Do(func() error {
				if err := netlink.RouteAdd(&route); err != nil {
					return err
				}
				if got, err := ReachOf(a); err != nil || got != want {
					t.Errorf("%s, %s: %+v, %v, want %+v", kind, a, got, err, want)
				}
				if own, err := IsOwn(a); err != nil || own != (kind == LocalRoute) {
					t.Errorf("%s, %s: own %v, %v", kind, a, own, err)
				}
				return nil
			}))
			// Of IPv6, this waits for the address's own route.
			own := netip.PrefixFrom(a.Next(), a.BitLen())
			must(t, ns.AddAddresses("eth0", own), ns.Do(func() error {
				if got, err := ReachOf(own.Addr()); err != nil || got.Route != LocalRoute {
					t.Errorf("%s, %s: %+v, %v, want a local route", kind, own, got, err)
				}
				return errors.Join(DeleteAddress("eth0", own), netlink.RouteDel(&route))
			}))
		}
	}
}
