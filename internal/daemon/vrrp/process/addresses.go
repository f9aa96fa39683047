// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
)

// ledger is what the loop knows of the addresses on the host. Wanted are those that groups
// hold, on the devices of their names. They are added one by one, as that is fast; all other
// addresses with the mark are removed from all devices, whatever these are called now. What
// fails is tried again until the host has what is wanted.
type ledger struct {
	// known are the wanted addresses; true: the host has it.
	known map[vrrp.Address]bool
	toAdd []vrrp.Address
	// clean: there may be marked addresses that are not wanted.
	clean      bool
	cleanAfter time.Duration // not earlier, after failures
	cleanPause time.Duration
	cleanError string
	// busy: the worker changes addresses. changes counts how often it was asked to.
	busy    bool
	changes uint64
}

// addAtOnce is how many addresses the worker adds before it answers: of thousands the first are
// announced meanwhile, and that the kernel answers is seen.
const addAtOnce = 500

// Between failures to remove addresses.
const (
	cleanPauseLeast = 50 * time.Millisecond
	cleanPauseMost  = 5 * time.Second
)

// take makes the group hold addresses.
func (g *group) take(addresses []vrrp.Address) {
	holds := setOf(g.holds)
	for _, a := range addresses {
		if !holds[a] {
			g.holds, holds[a] = append(g.holds, a), true
		}
		if _, is := g.known[a]; !is {
			g.known[a] = false
			g.toAdd = append(g.toAdd, a)
		}
	}
	g.notePending()
}

// release makes the group hold them no more. Another group may.
func (g *group) release(addresses []vrrp.Address) {
	gone := setOf(addresses)
	g.holds = slices.DeleteFunc(g.holds, func(a vrrp.Address) bool { return gone[a] })
	for _, o := range g.groups {
		for _, a := range o.holds {
			delete(gone, a)
		}
	}
	for _, a := range addresses {
		delete(g.unannounced, a)
		if gone[a] {
			delete(g.known, a)
		}
	}
	g.toAdd = slices.DeleteFunc(g.toAdd, func(a vrrp.Address) bool { return gone[a] })
	g.clean, g.cleanAfter = true, 0
	g.notePending()
}

// setOf has addresses for look-ups: a group can have thousands.
func setOf(addresses []vrrp.Address) map[vrrp.Address]bool {
	set := make(map[vrrp.Address]bool, len(addresses))
	for _, a := range addresses {
		set[a] = true
	}
	return set
}

// held reports whether a group holds an address.
func (l *loop) held(a vrrp.Address) bool {
	return slices.ContainsFunc(l.groups, func(g *group) bool { return slices.Contains(g.holds, a) })
}

// settled reports whether nothing of the ledger is to be done.
func (l *loop) settled() bool { return !l.busy && !l.clean && len(l.toAdd) == 0 }

// change is what the worker has done.
type change struct {
	added   map[vrrp.Address]error
	cleaned bool
	err     error
	notes   []note
}

// note is that of a device.
type note struct {
	device         string
	removed, again []netip.Prefix
}

// flush asks the worker for what is to be done.
func (l *loop) flush(t time.Duration) {
	clean := l.clean && t >= l.cleanAfter
	if l.busy || !clean && len(l.toAdd) == 0 {
		return
	}
	l.busy = true
	l.changes++
	add, devices := l.toAdd, l.devices
	l.toAdd = nil
	if len(add) > addAtOnce {
		add, l.toAdd = add[:addAtOnce], slices.Clone(add[addAtOnce:])
	}
	wanted := map[vrrp.Address]bool{}
	if clean {
		l.clean = false
		for a := range l.known {
			wanted[a] = true
		}
	}
	l.worker.do(func() {
		c := change{added: map[vrrp.Address]error{}, cleaned: clean}
		var added []netip.Addr
		for _, a := range add {
			if c.added[a] = addAddress(l.links, devices, a); c.added[a] == nil {
				added = append(added, a.Prefix.Addr())
			}
		}
		l.links.AwaitLocal(added) // announced next
		if clean {
			c.notes, c.err = removeOthers(l.links, wanted)
		}
		l.poll.post(func() { l.applied(&c) })
	})
}

// addAddress adds an address. The device may be another one of the name by now.
func addAddress(links *host.Links, devices map[string]*host.Device, a vrrp.Address) error {
	d := devices[a.Device]
	if d != nil {
		if err := links.AddMarked(d, a.Prefix); err == nil {
			return nil
		}
	}
	now, err := links.Devices()
	if err != nil {
		return err
	}
	if d = now[a.Device]; d == nil {
		return errNoDevice
	}
	if err = links.AddMarked(d, a.Prefix); errors.Is(err, unix.ENODEV) {
		return errNoDevice // it is being removed
	}
	return err
}

// errNoDevice: the loop is about to see that the device is gone, which is a fault that ends
// with its reason. Addresses of a device vanish before the device does, and are tried again.
var errNoDevice = errors.New("there is no such device")

// removeOthers removes marked addresses that are not wanted.
func removeOthers(links *host.Links, wanted map[vrrp.Address]bool) (notes []note, err error) {
	devices, err := links.Devices()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, d := range devices {
		n := note{device: d.Name}
		for _, a := range d.Addresses {
			if a.Protocol == host.Mark && !wanted[vrrp.Address{Device: d.Name, Prefix: a.Prefix}] {
				n.removed = append(n.removed, a.Prefix)
			}
		}
		if len(n.removed) == 0 {
			continue
		}
		n.again, err = links.RemoveMarked(d, n.removed)
		errs, notes = append(errs, err), append(notes, n)
	}
	return notes, errors.Join(errs...)
}

// applied is called when the worker has changed addresses.
func (l *loop) applied(c *change) {
	l.busy = false
	for a, err := range c.added {
		if _, is := l.known[a]; !is {
			continue // it is not wanted any more
		}
		if err == nil {
			l.known[a] = true
			continue
		}
		delete(l.known, a)
		if errors.Is(err, errNoDevice) {
			l.look()
			continue
		}
		for _, g := range l.groups {
			if slices.Contains(g.holds, a) {
				g.fail(err.Error())
			}
		}
	}
	for _, n := range c.notes {
		if len(n.again) > 0 {
			l.Log.Warn("Linux removed other addresses with those that moved; they were added again (sysctl net.ipv4.conf.all.promote_secondaries=1 prevents that)", "device", n.device, "addresses", n.again)
		}
	}
	if c.cleaned {
		l.cleanedUp(c)
	}
	if c.cleaned && c.err == nil && !l.clean {
		l.confirmResignations()
	}
	for _, g := range l.groups {
		g.completed()
		if len(c.added) > 0 {
			g.pendingSince = 0 // the kernel has answered
		}
		g.notePending()
		g.endOverdue()
	}
}

// cleanedUp tries the removal of addresses again if it failed.
func (l *loop) cleanedUp(c *change) {
	if c.err == nil {
		l.cleanPause, l.cleanError = 0, ""
		if !l.clean { // nothing was released since
			l.endGuards()
		}
		return
	}
	l.cleanPause = min(max(2*l.cleanPause, cleanPauseLeast), cleanPauseMost)
	l.clean, l.cleanAfter = true, now()+l.cleanPause
	if text := oneLine(c.err); text != l.cleanError {
		l.cleanError = text
		l.Log.Error("addresses cannot be removed; that is tried again", "error", text)
	}
}

// completed announces addresses that the host has now, and notes the success of a group that
// has all.
func (g *group) completed() {
	if len(g.unannounced) > 0 {
		var ready []vrrp.Address
		most := 0
		for a, repeat := range g.unannounced {
			if g.known[a] {
				ready, most = append(ready, a), max(most, repeat)
				delete(g.unannounced, a)
			} else if _, is := g.known[a]; !is {
				delete(g.unannounced, a) // it failed
			}
		}
		g.announce(ready, most)
	}
	if g.failures > 0 && g.machine.State() == vrrp.Master && len(g.holds) > 0 && g.failed == "" &&
		!slices.ContainsFunc(g.holds, func(a vrrp.Address) bool { return !g.known[a] }) {
		g.failures, g.refrains = 0, false
	}
}

// verify compares the addresses of the devices, which have just been read, to what is wanted.
func (l *loop) verify(t time.Duration) {
	foreign := map[vrrp.Address]bool{}
	for _, d := range l.devices {
		for _, a := range d.Addresses {
			one := vrrp.Address{Device: d.Name, Prefix: a.Prefix}
			if a.Protocol != host.Mark {
				foreign[one] = true
			} else if _, is := l.known[one]; !is {
				l.clean = true
			}
		}
	}
	for _, g := range l.groups {
		if g.machine.State() == vrrp.Master {
			g.keepAddresses(t)
		}
		g.noteForeign(foreign)
	}
}

// keepAddresses adds addresses of a master again that somebody removed. If that goes on, the
// group is in fault: another program wants it otherwise.
func (g *group) keepAddresses(t time.Duration) {
	var missing, again []vrrp.Address
	for _, a := range g.holds {
		d := g.devices[a.Device]
		if d == nil || !d.Up || g.failed != "" {
			continue // a fault
		}
		switch has, is := g.known[a]; {
		case !is: // the device was gone
			again = append(again, a)
		case has && !d.Has(a.Prefix):
			missing = append(missing, a)
		}
	}
	if len(again)+len(missing) == 0 {
		return
	}
	g.restored = slices.DeleteFunc(g.restored, func(at time.Duration) bool { return t-at > restoreWithin })
	if g.restored = append(g.restored, t); len(g.restored) > restoreLimit {
		g.restored = nil
		if len(missing) > 0 {
			g.fail(fmt.Sprintf("another program removes the addresses again and again: %s", texts(missing)))
		} else {
			g.fail(fmt.Sprintf("the device vanishes again and again while addresses are added: %s", texts(again)))
		}
		return
	}
	if len(again) > 0 {
		g.take(again)
		g.announce(again, g.setup.Announcements)
	}
	if len(missing) == 0 {
		return
	}
	g.Log.Warn("addresses were removed by another program, and are added again", "group", g.setup.Name, "addresses", texts(missing))
	for _, a := range missing {
		delete(g.known, a)
	}
	g.take(missing)
	g.announce(missing, g.setup.Announcements)
}

// noteForeign finds addresses of the group that the host has without the mark, such as those
// that a keepalived left that was killed. They stay when the group leaves. Priority 255 says
// that the host has them.
func (g *group) noteForeign(unmarked map[vrrp.Address]bool) {
	var foreign []string
	for _, a := range g.setup.AllAddresses() {
		if unmarked[a] && g.setup.Priority != vrrp.PriorityOwner {
			foreign = append(foreign, fmt.Sprintf("%s dev %s", a.Prefix, a.Device))
		}
	}
	if len(foreign) > 0 && !slices.Equal(foreign, g.foreign) {
		g.Log.Warn("the host has addresses of the group that another program added: they stay when the group leaves (ip address delete removes them)",
			"group", g.setup.Name, "addresses", strings.Join(foreign, ", "))
	}
	g.foreign = foreign
}

func texts(addresses []vrrp.Address) string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.Prefix.String())
	}
	return strings.Join(all, " ")
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
