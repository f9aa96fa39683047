// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
	"imbang/internal/testenv"
)

// endingPlane calls a function when a lease ends.
type endingPlane struct {
	*fakePlane
	ended func()
}

func (p endingPlane) Renew(group uint32, until time.Duration) error {
	if until == 0 {
		p.ended()
	}
	return p.fakePlane.Renew(group, until)
}

// The leases of all groups end before any of them resigns, and before that a grace period begins, as
// at any end of a master.
func TestStopOrder(t *testing.T) { testenv.Patient(t, testStopOrder) }

func testStopOrder(t testing.TB) {
	link := newNetwork(t)
	if err := link.host(1).Do(func() error {
		l := quietLoop(t, now(), "a", "b")
		l.setup.Grace = 3 * time.Second
		ended, plane := 0, newPlane()
		l.plane, l.slots = endingPlane{plane, func() {
			ended++
			if left := plane.grace - now(); plane.grace == 0 || left > leaveGrace {
				t.Errorf("a grace period of %v as a lease ends", left)
			}
			for _, g := range l.groups {
				if g.unsent > 1 { // of becoming master
					t.Errorf("%s has resigned", g.setup.Name)
				}
			}
		}}, map[string]uint32{"a": 0, "b": 1}
		if err := l.open(); err != nil {
			return err
		}
		defer l.close()
		var err error
		if l.devices, err = host.Devices(); err != nil {
			return err
		}
		delete(l.devices, "eth0") // nothing can be sent
		for _, g := range l.groups {
			g.call(func(m *vrrp.Machine, out *vrrp.Output) { m.Take(now(), out) })
		}
		plane.grace = 0 // of becoming master
		l.stop()
		for _, g := range l.groups {
			if ended != 2 || g.unsent != 2 || g.machine.State() != vrrp.Initialize {
				t.Errorf("%d ended, %d advertisements", ended, g.unsent)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
