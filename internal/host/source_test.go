// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// The second address of a network and an address with a local route are own, too.
func TestIsOwn(t *testing.T) {
	ns := testenv.Namespace(t, "own")
	if err := host.Connect(host.End{NS: ns, Name: "eth0"}, host.End{NS: testenv.Namespace(t, "other"), Name: "eth0"}, host.LinkOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"10.20.0.11/24", "10.20.0.1/24", "fd00:20::11/64", "fd00:20::1/64"} {
		if err := ns.AddAddresses("eth0", netip.MustParsePrefix(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := ns.AddRoutes(host.Route{Dst: netip.MustParsePrefix("10.21.0.0/24"), Dev: "lo", Local: true}); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{
		"10.20.0.11": true, "10.20.0.1": true, "10.21.0.7": true, "127.0.0.1": true, "fd00:20::11": true, "fd00:20::1": true, "::1": true,
		"10.20.0.2": false, "192.0.2.1": false, "fd00:20::2": false, "2001:db8::1": false,
	} {
		err := ns.Do(func() error {
			own, err := host.IsOwn(netip.MustParseAddr(addr))
			// The kernel adds the local route of a new IPv6 address a moment later.
			for end := time.Now().Add(time.Minute); want && !own && err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
				own, err = host.IsOwn(netip.MustParseAddr(addr))
			}
			if own != want {
				t.Errorf("%s: own %v", addr, own)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
