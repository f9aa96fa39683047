// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// pendingMaster is a loop with a master whose addresses the worker is adding, and the time.
func pendingMaster(t testing.TB) (*loop, *group, time.Duration) {
	t.Helper()
	begin := now()
	l := quietLoop(t, begin, "web")
	l.devices = map[string]*host.Device{
		"eth0": {Name: "eth0", Up: true, MTU: 1500, Addresses: []host.DeviceAddress{{Prefix: netip.PrefixFrom(own4(1), 24)}}},
		"eth1": {Name: "eth1", Up: true, MTU: 1500},
	}
	g := l.groups[0]
	g.reconfigure(begin)
	g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(begin, out) })
	l.busy, l.toAdd = true, nil
	return l, g, begin
}

// advance ticks until a time, when it is due.
func advance(l *loop, from, to time.Duration) {
	for t := from; t < to; t += interval / 2 {
		if at := l.next(t); at != 0 && at <= t {
			l.groups[0].tick(t)
		}
	}
}

// A master whose addresses the kernel does not add leaves. It does not preempt until it was
// master with all of them, and is not in fault any more when the kernel answers.
func TestOverdueAddresses(t *testing.T) { testenv.Patient(t, testOverdueAddresses) }

func testOverdueAddresses(t testing.TB) {
	l, g, begin := pendingMaster(t)
	advance(l, begin, begin+overdueLeast-interval)
	if g.machine.State() != vrrp.Master || len(g.faults) > 0 {
		t.Fatalf("%v, %q", g.machine.State(), g.faults)
	}
	advance(l, begin+overdueLeast-interval, begin+overdueLeast+2*interval)
	if g.machine.State() != vrrp.Fault || !strings.Contains(strings.Join(g.faults, ""), "the kernel has not added the addresses") {
		t.Fatalf("%v, %q", g.machine.State(), g.faults)
	}
	l.applied(&change{added: map[vrrp.Address]error{g.setup.AllAddresses()[0]: nil}})
	if g.machine.State() != vrrp.Backup || !g.machine.Snapshot().GaveUp || !l.clean {
		t.Fatalf("%v, %q", g.machine.State(), g.faults)
	}
	g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(now(), out) })
	c := change{added: map[vrrp.Address]error{}}
	for _, a := range g.holds {
		c.added[a] = nil
	}
	l.applied(&c)
	if g.refrains || g.pendingSince != 0 || g.overdueAt() != 0 {
		t.Errorf("%+v", g)
	}
}

// Addresses that a reload adds do not end a master that has its others, nor do those that the
// host had at a handover.
func TestNotOverdue(t *testing.T) { testenv.Patient(t, testNotOverdue) }

func testNotOverdue(t testing.TB) {
	l, g, begin := pendingMaster(t)
	c := change{added: map[vrrp.Address]error{}}
	for _, a := range g.holds {
		c.added[a] = nil
	}
	l.applied(&c)
	l.busy = true
	more := g.setup
	more.Addresses = append([]vrrp.Address{{Device: "eth1", Prefix: netip.MustParsePrefix("172.16.0.2/24")}}, more.Addresses...)
	g.changed(&more)
	g.reload(begin)
	advance(l, begin, begin+2*overdueLeast)
	if g.machine.State() != vrrp.Master || !g.pending() {
		t.Errorf("%v, %q", g.machine.State(), g.faults)
	}

	l, g, begin = pendingMaster(t)
	for _, a := range g.holds {
		d := l.devices[a.Device]
		d.Addresses = append(d.Addresses, host.DeviceAddress{Prefix: a.Prefix, Protocol: host.Mark})
	}
	s := g.machine.Snapshot()
	l.known, g.holds = map[vrrp.Address]bool{}, nil
	if err := g.restore(begin, s, memory{}); err != nil {
		t.Fatal(err)
	}
	advance(l, begin, begin+2*overdueLeast)
	if g.machine.State() != vrrp.Master || !g.pending() {
		t.Errorf("%v, %q", g.machine.State(), g.faults)
	}
}
