// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// Rounds of a master and of a backup allocate nothing: with an interval of 10 ms the garbage
// collector would have work all the time.
func TestAllocations(t *testing.T) { testenv.Patient(t, testAllocations) }

func testAllocations(t testing.TB) {
	link := newNetwork(t)
	on := func(ns *host.Namespace, s setup.Group, f func(l *loop, g *group)) {
		t.Helper()
		if err := ns.Do(func() error {
			l := quietLoop(t, now())
			l.sockets = map[spot]*opened{}
			if err := l.open(); err != nil {
				return err
			}
			defer l.close()
			var err error
			if l.devices, err = host.Devices(); err != nil {
				return err
			}
			g := newGroup(l, &s)
			if err := g.make(); err != nil {
				return err
			}
			l.groups = []*group{g}
			l.openSockets()
			l.settle(awaited)
			g.machine.Start(now(), &g.out)
			f(l, g)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	one, two := web(150, virtual4), web(100, virtual4)
	one.Interval, two.Interval = time.Second, time.Second
	one.AnnounceEvery = time.Hour
	on(link.host(1), one, func(a *loop, master *group) {
		on(link.host(2), two, func(b *loop, backup *group) {
			at := now()
			master.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(at, out) })
			a.settle(awaited)
			master.next = at
			advertise := func() {
				at += time.Second
				master.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Tick(at, out) })
			}
			for range 10 { // announcements are over
				advertise()
			}
			n := testing.AllocsPerRun(50, advertise)
			if n > 0 {
				t.Errorf("an advertisement allocates %g times", n)
			}
			s := b.sockets[spot{"eth0", false}]
			b.receive(s)
			before := backup.machine.Counts().Received
			n = testing.AllocsPerRun(50, func() {
				advertise()
				b.receive(s)
				b.poll.take()
			}) - n
			if got := backup.machine.Counts().Received - before; got < 50 {
				t.Errorf("%d received", got)
			}
			if n > 0 {
				t.Errorf("a received advertisement allocates %g times", n)
			}
		})
	})
}
