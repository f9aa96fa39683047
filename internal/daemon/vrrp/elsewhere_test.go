// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"net/netip"
	"slices"
	"testing"
)

// Addresses on other devices than a router's are advertised by it, and configured where they are.
func TestElsewhere(t *testing.T) {
	c := pairConfig(100)
	outside := Address{"eth2", netip.MustParsePrefix("203.0.113.5/24")}
	c.Routers[0].Elsewhere = []Address{outside}
	for name, addresses := range map[string][]netip.Prefix{"beside others": c.Routers[0].Addresses, "alone": nil} {
		c.Routers[0].Addresses = addresses
		b := started(t, c)
		var taken []Address
		var sent []netip.Addr
		for b.m.State() != Master {
			b.now = max(b.now, b.next)
			b.do(func() { b.m.Tick(b.now, &b.out) })
			for _, a := range b.out.Actions {
				switch {
				case a.Kind == ActionTake:
					taken = append(taken, a.Addresses...)
				case a.Kind == ActionAdvertise && a.Router == 0:
					sent = a.Advertisement.Addresses
				}
			}
		}
		var want []netip.Addr
		for _, p := range addresses {
			want = append(want, p.Addr())
		}
		want = append(want, outside.Prefix.Addr())
		if !slices.Equal(sent, want) {
			t.Errorf("%s: %v are advertised, want %v", name, sent, want)
		}
		if !slices.Contains(taken, outside) {
			t.Errorf("%s: %v are taken, without %v", name, taken, outside)
		}
		backup := started(t, c)
		backup.receive(0, "10.0.0.6", 200)
		if slices.Contains(backup.log, EventAddressesDiffer.String()) {
			t.Errorf("%s: %v", name, backup.log)
		}
	}
	c.Routers[0].Elsewhere = []Address{{"eth2", netip.MustParsePrefix("2001:db8::5/64")}}
	if _, err := New(c); err == nil {
		t.Error("an address of another family is not refused")
	}
}
