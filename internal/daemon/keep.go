// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/place"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// Alarms of the host.
const (
	alarmDevice     = "device"
	alarmAddress    = "address"
	alarmForwarding = "forwarding"
)

// keepHost sees that the director is attached, that the virtual addresses are there, and
// that the kernel forwards, as far as the configuration has a director.
func (d *Daemon) keepHost() {
	c := d.core.Config.Director
	d.dropAddresses(c)
	if c == nil {
		return
	}
	err := d.table.use(func(t *director.Director) error { return d.keepAttached(t, c) })
	switch {
	case errors.Is(err, director.ErrNotLoaded) || errors.Is(err, fs.ErrNotExist):
		d.raise(alarmDevice, "the director was removed: imbang reload loads it again")
	case err != nil:
		d.raise(alarmDevice, err.Error())
	default:
		d.clear(alarmDevice)
	}
	d.keepAddresses(c)
	if !c.Forwarding {
		return
	}
	if err := d.keepForwarding(); err != nil {
		d.raise(alarmForwarding, err.Error())
	} else {
		d.clear(alarmForwarding)
	}
}

// keepAttached attaches the director where it is to be and is not: at first, when a
// device was made again, and when the configuration names other devices.
func (d *Daemon) keepAttached(t *director.Director, c *config.Director) error {
	now, err := t.Attachments()
	if err != nil {
		return err
	}
	gone, err := t.Gone(now)
	if err != nil {
		return err
	}
	if len(gone) == 0 && attachedTo(now, c) {
		return nil
	}
	for _, dev := range []string{c.ClientDevice, c.ServerDevice} {
		if exists, _ := host.DeviceIsUp(dev); !exists {
			return fmt.Errorf("there is no device %s: the director is attached when there is", dev)
		}
	}
	if len(now) > 0 {
		if err := director.Detach(false); err != nil {
			return err
		}
	}
	choice, err := t.AttachMode(c.ClientDevice, c.ServerDevice, director.Hook(c.Hook), director.Mode(c.Mode))
	if err != nil {
		return err
	}
	d.note(events.Event{Kind: events.Changed, Text: fmt.Sprintf("attached to %s and %s, %s", c.ClientDevice, c.ServerDevice, choice)})
	return nil
}

// attachedTo reports whether attachments are those of a configuration.
func attachedTo(now []director.Attachment, c *config.Director) bool {
	client, server := false, c.ClientDevice == c.ServerDevice
	for _, a := range now {
		switch a.Role {
		case "client":
			if a.Device != c.ClientDevice {
				return false
			}
			client = true
		case "server":
			if a.Device != c.ServerDevice {
				return false
			}
			server = true
		}
	}
	return client && server
}

// keepAddresses adds virtual addresses that are missing, unless another machine has them,
// which is an alarm. That others removed one is an alarm for as long as it takes to add it.
func (d *Daemon) keepAddresses(c *config.Director) {
	var missing []string
	var add []config.Address
	for _, a := range c.Addresses {
		there, err := host.HasAddress(a.Device, a.Prefix.Addr())
		if err != nil {
			missing = append(missing, err.Error())
			continue
		}
		if there {
			d.configured[a] = true
			continue
		}
		add = append(add, a)
	}
	d.lookForOwners(add, time.Now())
	for _, a := range add {
		if owner, is := d.taken[a]; is {
			missing = append(missing, takenText(a, owner))
			continue
		}
		if err := host.AddKept(a.Device, a.Prefix); err != nil {
			missing = append(missing, err.Error())
			continue
		}
		kind, text := events.Changed, "added address"
		if d.configured[a] {
			kind, text = events.AlarmRaised, "restored an address that was removed:"
		}
		d.configured[a], d.added[a], d.unsaved = true, true, true
		d.note(events.Event{Kind: kind, Text: fmt.Sprintf("%s %s on %s", text, a.Prefix, a.Device)})
	}
	if missing != nil {
		d.raise(alarmAddress, strings.Join(missing, "; "))
		return
	}
	d.clear(alarmAddress)
}

// recallAddresses finds the virtual addresses that a daemon added: by their mark, and by the record, if
// an earlier version added them.
func (d *Daemon) recallAddresses(r record) error {
	for _, a := range r.Added {
		d.added[a] = true
	}
	return host.EachKept(func(dev string, p netip.Prefix) { d.added[config.Address{Device: dev, Prefix: p}] = true })
}

// DropAddresses deletes the virtual addresses that the daemon added, which runs no more. It returns those
// that were deleted, one line each.
func DropAddresses() (lines []string, err error) {
	d := &Daemon{added: map[config.Address]bool{}}
	if d.dir, err = place.Dir(); err != nil {
		return nil, err
	}
	if err := d.recallAddresses(d.recall()); err != nil {
		return nil, err
	}
	for _, a := range slices.SortedFunc(maps.Keys(d.added), config.Address.Compare) {
		if has, _ := host.HasAddress(a.Device, a.Prefix.Addr()); !has {
			continue
		}
		if err := host.DeleteAddress(a.Device, a.Prefix); err != nil {
			return lines, err
		}
		lines = append(lines, fmt.Sprintf("deleted address %s on %s, which imbang run had added", a.Prefix, a.Device))
	}
	return lines, nil
}

// dropAddresses deletes the virtual addresses that the daemon added and that the
// configuration does not name any more.
func (d *Daemon) dropAddresses(c *config.Director) {
	if d.surplus {
		return // it may be of a service that is kept
	}
	for a := range d.added {
		if c != nil && slices.Contains(c.Addresses, a) {
			continue
		}
		if exists, _ := host.DeviceIsUp(a.Device); exists {
			if err := host.DeleteAddress(a.Device, a.Prefix); err != nil {
				d.raise(alarmAddress, err.Error())
				continue
			}
			d.note(events.Event{Kind: events.Changed, Text: fmt.Sprintf("deleted address %s on %s", a.Prefix, a.Device)})
		}
		delete(d.added, a)
		delete(d.configured, a)
		d.unsaved = true
	}
}

// keepForwarding turns forwarding on for the families of the services.
func (d *Daemon) keepForwarding() error {
	for _, s := range d.core.Config.Services {
		family, six := "IPv4", s.Key.Family == model.IPv6
		if six {
			family = "IPv6"
		}
		on, err := host.Forwarding(six)
		if err == nil && on {
			continue
		}
		if err == nil {
			err = host.Forward(six)
		}
		if err != nil {
			return err
		}
		d.note(events.Event{Kind: events.Changed, Text: "turned forwarding on for " + family})
	}
	return nil
}
