// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// elsewhere is an address that a router advertises on eth0, and that is on another device.
var elsewhere = vrrp.Address{Device: gateway.Device, Prefix: netip.MustParsePrefix("203.0.113.5/24")}

// webElsewhere is the group web whose only advertised address is elsewhere.
func webElsewhere(priority uint8) setup.Group {
	g := web(priority, nil)
	g.Routers[0].Elsewhere = []vrrp.Address{elsewhere}
	return g
}

// The only address of a router can be on another device than its advertisements.
func TestElsewhere(t *testing.T) { testenv.Patient(t, testElsewhere) }

func testElsewhere(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), webElsewhere(150)).start()
	b := newNode(t, link.host(2), webElsewhere(100)).start()
	only := func(with, without *node) func() bool {
		return func() bool {
			return has(t, with.ns, elsewhere, gateway) == 2 && has(t, without.ns, elsewhere, gateway) == 0
		}
	}
	a.await("the better one has the address", only(a, b))
	b.await("the backup follows it", func() bool { return b.group().Routers[0].Master == a.group().Routers[0].Source })
	if got := a.group().Routers[0]; len(got.Addresses) > 0 || !slices.Equal(got.Elsewhere, []Address{{elsewhere.Prefix.String(), elsewhere.Device}}) {
		t.Errorf("%+v", got)
	}
	a.stop()
	b.await("the backup takes over", only(b, a))
	// The device of the advertisements is needed, and so is that of the address.
	g := webElsewhere(100)
	if got, want := g.Needed(), []string{"eth0", elsewhere.Device}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	a.start()
	a.await("the better one is master again", only(a, b))
	a.vanish(false)
	b.await("the backup takes over after silence", b.is(vrrp.Master))
	a.start() // it begins by removing what it left
	a.await("the better one is master once more", only(a, b))
}

// Keepalived advertises an address of another device in the same way.
func TestElsewhereBesideKeepalived(t *testing.T) { testenv.Patient(t, testElsewhereBesideKeepalived) }

func testElsewhereBesideKeepalived(t testing.TB) {
	if _, err := exec.LookPath("keepalived"); err != nil {
		t.Skip("needs keepalived")
	}
	link := newNetwork(t)
	group := webElsewhere(150)
	group.Interval = interopInterval
	n := newNode(t, link.host(1), group)
	k := &keepalived{TB: t, ns: link.host(2), dir: t.TempDir(), number: 2, addresses: []netip.Prefix{elsewhere.Prefix}, device: elsewhere.Device}
	t.Cleanup(k.stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("keepalived:\n%s", k.log.String())
		}
	})
	const imbang, other = 0, 1
	o := observe(t, elsewhere, n.ns, k.ns)
	k.start(100)
	o.master(t, "keepalived alone", other, awaited)
	n.start()
	o.master(t, "imbang preempts", imbang, awaited)
	n.stop()
	o.master(t, "imbang resigns", other, awaited)
	k.stop()
	k.start(200)
	n.start()
	o.master(t, "keepalived is the better one", other, awaited)
	n.await("imbang follows it", func() bool { return n.group().Routers[0].Master != "" })
	for _, r := range n.group().Refused {
		if r.Count > 0 {
			t.Errorf("%+v", r)
		}
	}
	if log := k.log.String(); strings.Contains(log, "associated with VRID") {
		t.Errorf("keepalived misses addresses in imbang's advertisements:\n%s", log)
	}
	k.stop()
	o.master(t, "keepalived resigns", imbang, awaited)
}
