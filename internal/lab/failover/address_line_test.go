// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"net/netip"
	"testing"
)

func TestParseAddressLine(t *testing.T) {
	type parsed struct {
		device  string
		address netip.Prefix
		has, is bool
	}
	four, six := netip.MustParsePrefix("10.20.0.1/32"), netip.MustParsePrefix("fd00:20::1/128")
	for line, want := range map[string]parsed{
		// As iproute2 6.1 prints them.
		`3: ext0    inet 10.20.0.1/32 scope global ext0\       valid_lft forever preferred_lft forever`:              {"ext0", four, true, true},
		`Deleted 3: ext0    inet 10.20.0.1/32 scope global ext0\       valid_lft forever preferred_lft forever`:      {"ext0", four, false, true},
		`3: ext0    inet6 fd00:20::1/128 scope global nodad \       valid_lft forever preferred_lft forever`:         {"ext0", six, true, true},
		`Deleted 3: ext0    inet6 fd00:20::1/128 scope global nodad \       valid_lft forever preferred_lft forever`: {"ext0", six, false, true},
		`3: ext0    inet6 fe80::80a:b8ff:feaa:c364/64 scope link \       valid_lft forever preferred_lft forever`:    {"ext0", netip.MustParsePrefix("fe80::80a:b8ff:feaa:c364/64"), true, true},
		`Thu Nov 26 06:18:15 2026: (web) setting VIPs.`:                                                              {},
		`Thu Nov 26 06:20:25 2026: Assigned address 10.10.0.251 for interface ext0`:                                  {},
		`uml-vector uml-vector.0 ext0: netif_napi_add_weight() called with weight 128`:                               {},
		`3: ext0    inet 10.20.0.1`: {},
		``:                          {},
	} {
		device, a, has, is := parseAddressLine(line)
		if got := (parsed{device, a, has, is}); got != want {
			t.Errorf("%q: %+v, want %+v", line, got, want)
		}
	}
}
