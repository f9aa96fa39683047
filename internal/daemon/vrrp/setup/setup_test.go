// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"net/netip"
	"slices"
	"testing"

	"imbang/internal/daemon/vrrp"
)

func TestEffective(t *testing.T) {
	for _, c := range []struct {
		base    uint8
		weights []int
		want    uint8
	}{
		{100, nil, 100}, {100, []int{20, -50}, 70}, {100, []int{-200}, 1}, {200, []int{100}, 254}, {255, []int{-100}, 255},
	} {
		if got := Effective(c.base, c.weights...); got != c.want {
			t.Errorf("%d with %v: %d, want %d", c.base, c.weights, got, c.want)
		}
	}
}

// Weights are keepalived's.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		weight int
		up     bool
		add    int
		fault  bool
	}{
		{0, true, 0, false}, {0, false, 0, true}, {10, true, 10, false}, {10, false, 0, false}, {-10, true, 0, false}, {-10, false, -10, false},
	} {
		if add, fault := Share(c.weight, c.up); add != c.add || fault != c.fault {
			t.Errorf("%d, %t: %d, %t", c.weight, c.up, add, fault)
		}
	}
}

// A group whose devices have no address to send from is valid, too.
func TestMachine(t *testing.T) {
	g := Group{
		Name: "web", Priority: 100,
		Routers: []Router{
			{Device: "eth0", ID: 1, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}},
			{Device: "eth0", ID: 1, Addresses: []netip.Prefix{netip.MustParsePrefix("fe80::7/64")}},
		},
		Addresses: []vrrp.Address{{Device: "eth1", Prefix: netip.MustParsePrefix("10.1.0.1/24")}},
		Devices:   []Device{{Name: "eth2"}, {Name: "eth3", Weight: 5}},
	}
	if _, err := vrrp.New(g.Machine(100, make([]netip.Addr, 2))); err != nil {
		t.Error(err)
	}
	own := netip.MustParseAddr("10.0.0.9")
	if c := g.Machine(90, []netip.Addr{own, {}}); c.Routers[0].Source != own || c.Priority != 90 || !c.Routers[1].Source.Is6() {
		t.Errorf("%+v", c)
	}
	if got, want := g.Needed(), []string{"eth0", "eth1", "eth2"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
