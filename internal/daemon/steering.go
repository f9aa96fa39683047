// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"strings"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/director"
	"imbang/internal/model"
)

// alarmSteering is raised while checks that should go the way of the traffic go to
// servers' own addresses, or are not made: they do not show whether that way is open.
const alarmSteering = "steering"

// steer has a check go as the traffic does, where that is another way.
func (d *Daemon) steer(t *check.Target, ch *config.Check, s *config.Service, one *config.Server) {
	virtual := t.Virtual
	if ch.Virtual.IsValid() {
		virtual = netip.AddrPortFrom(ch.Virtual, virtual.Port())
	}
	direct := one.Forward != model.Route && one.Forward != model.Tunnel
	if !ch.Steered || direct || !virtual.Addr().IsValid() || virtual.Addr().Is4() != t.Addr.Addr().Is4() {
		return
	}
	// The port that clients ask for, if the check is of the server's.
	if port := t.Addr.Port(); virtual.Port() == 0 || port != one.Port {
		virtual = netip.AddrPortFrom(virtual.Addr(), port)
	}
	t.Dial = d.dialer.To(s.Key, one.Server, virtual)
	d.steered++
}

// keepSteering has the director steer while there are checks to steer: one that was
// upgraded or made anew, too.
func (d *Daemon) keepSteering() {
	if d.steered == 0 {
		if d.steering != nil {
			d.endSteering()
		}
		d.clear(alarmSteering)
		return
	}
	err := d.table.use(func(t *director.Director) error {
		if t == d.steering {
			return nil
		}
		s, err := t.Steering()
		if err == nil {
			d.dialer.Use(s)
			d.dialer.Forget() // what failed with the last one
			d.steering = t
		}
		return err
	})
	if err != nil {
		d.raise(alarmSteering, err.Error())
		return
	}
	if list := d.dialer.Astray(); len(list) > 0 {
		d.raise(alarmSteering, strings.Join(list, "; "))
		return
	}
	d.clear(alarmSteering)
}

func (d *Daemon) endSteering() {
	err := d.table.use(func(t *director.Director) error { return t.StopSteering() })
	if err != nil {
		d.raise(alarmSteering, err.Error())
	}
	d.steering = nil
}
