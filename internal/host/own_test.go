// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net/netip"
	"slices"
	"testing"
)

func TestOwnAddresses(t *testing.T) {
	ns, _ := withDevice(t)
	want := prefixes("10.9.0.1/24", "fd00:9::1/64")
	var got []netip.Addr
	must(t, ns.Do(func() (err error) {
		for _, p := range want {
			must(t, AddAddress("eth0", p))
		}
		got, err = OwnAddresses()
		return err
	}))
	for _, p := range want {
		if !slices.Contains(got, p.Addr()) {
			t.Errorf("%s is missing in %v", p.Addr(), got)
		}
	}
	if slices.Contains(got, netip.MustParseAddr("10.9.0.2")) {
		t.Errorf("another address is in %v", got)
	}
}
