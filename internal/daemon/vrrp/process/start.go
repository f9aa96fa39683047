// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"time"

	"imbang/internal/daemon/place"
	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/host"
)

// start starts the groups: where an earlier program handed over, as it was there.
func (l *loop) start(wanted *setup.Setup, before handover) (err error) {
	t := now()
	l.setup = wanted
	l.tracker.set(wanted.Scripts, before.Scripts)
	if l.devices = before.Devices; l.devices == nil {
		if l.devices, err = l.links.Devices(); err != nil {
			return err
		}
	}
	for i := range wanted.Groups {
		g := newGroup(l, &wanted.Groups[i])
		l.groups = append(l.groups, g)
		if snapshot, has := before.Groups[g.setup.Name]; has {
			if err := g.restore(t, snapshot, before.Memory[g.setup.Name]); err == nil {
				continue
			} else {
				l.Log.Error("what the earlier program handed over cannot be used: the group starts anew", "group", g.setup.Name, "error", err)
			}
		}
		if err := g.make(); err != nil {
			return err
		}
	}
	l.recall(&before)
	l.guard()
	l.adopt(before.Sockets)
	l.openSockets()
	l.clean = true
	if before.Groups == nil { // nothing is advertised yet
		l.noteStale()
		if !l.settle(startPatience) {
			return fmt.Errorf("%w within %s: another program holds its RTNL lock", errNoAnswer, startPatience)
		}
	}
	l.started = true
	for _, g := range l.groups {
		g.begin(now())
	}
	// Until now imbang vrrp clean could resign for a program that was killed.
	_ = os.Remove(place.VRRPHandover(l.Dir))
	l.look()
	return nil
}

// abandon ends a process that cannot run, because of an error. Groups that it went on with, or
// was about to, resign. What they have left on the host, or a process that was killed, is removed.
func (l *loop) abandon(before *handover, err error) error {
	if l.started {
		l.stop()
		return err
	}
	if before.Groups != nil {
		l.Log.Error("the program cannot go on with what the earlier one handed over", "error", oneLine(err))
		if l.plane != nil {
			for name, slot := range before.Slots {
				l.noted(planeError{useLease, name}, l.plane.Renew(slot, 0))
			}
		}
		resign(before, l.Log)
		_ = os.Remove(place.VRRPHandover(l.Dir))
	}
	if errors.Is(err, errNoAnswer) { // nor would it now
		return err
	}
	return errors.Join(err, cleanUp(l.Log, l.OpenPlane))
}

// noteStale logs that marked addresses of an earlier process are about to be removed.
func (l *loop) noteStale() {
	for _, d := range l.devices {
		var stale []vrrp.Address
		for _, a := range d.Addresses {
			if one := (vrrp.Address{Device: d.Name, Prefix: a.Prefix}); a.Protocol == host.Mark && !l.held(one) {
				stale = append(stale, one)
			}
		}
		if len(stale) > 0 {
			l.Log.Info("addresses of an earlier process are removed", "device", d.Name, "addresses", texts(stale))
		}
	}
}

// startPatience is how long a start waits for the kernel.
const startPatience = time.Minute

var errNoAnswer = errors.New("the kernel has not answered")
