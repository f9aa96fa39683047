// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/host"
)

// hostChanges are what applying a configuration changes beside the table: addresses, and
// the devices that the director is attached to, and roles of synchronization, one line each.
func (d *Daemon) hostChanges(next *config.Config) (lines []string) {
	c := next.Director
	for a := range d.added {
		if c == nil || !slices.Contains(c.Addresses, a) {
			lines = append(lines, fmt.Sprintf("delete address %s on %s", a.Prefix, a.Device))
		}
	}
	slices.Sort(lines)
	lines = append(lines, roleChanges(d.sync.Configured(), next.Roles)...)
	changed, err := d.own.KeyChanged()
	lines = append(lines, d.pairChanges(next.Pair)...)
	lines = append(lines, replicationChanges(d.own.Configured(), next.Replication, changed, err)...)
	lines = append(lines, d.layer7Changes(next)...)
	if c == nil {
		return lines
	}
	for _, a := range c.Addresses {
		if there, err := host.HasAddress(a.Device, a.Prefix.Addr()); err == nil && !there {
			lines = append(lines, fmt.Sprintf("add address %s on %s", a.Prefix, a.Device))
		}
	}
	var now []director.Attachment
	_ = d.table.use(func(t *director.Director) (err error) { // without one there is none
		now, err = t.Attachments()
		return err
	})
	if !attachedTo(now, c) {
		lines = append(lines, fmt.Sprintf("attach to %s and %s", c.ClientDevice, c.ServerDevice))
	}
	return lines
}

// devicesExist refuses a configuration that names devices which are not there, unless the
// one that is applied names them, too: they may have gone.
func (d *Daemon) devicesExist(next *config.Config) error {
	c, was := next.Director, d.core.Config.Director
	if c == nil || was != nil && was.ClientDevice == c.ClientDevice && was.ServerDevice == c.ServerDevice {
		return nil
	}
	for _, one := range []struct{ key, device string }{{"client_device", c.ClientDevice}, {"server_device", c.ServerDevice}} {
		if exists, _ := host.DeviceIsUp(one.device); !exists {
			return api.Conflict(fmt.Errorf("refused: director.%s: there is no device %s (--force applies the configuration, and the director is attached when there is)", one.key, one.device))
		}
	}
	return nil
}

// planned is a plan as the API has it, with what changes beside the table first.
func planned(p *plan.Plan, host []string) *api.Plan {
	out := &api.Plan{Changes: append([]string{}, host...), // never null in JSON
		Summary: summary(p, host), Named: p.Named, Removed: p.Removed}
	for _, c := range p.Changes {
		out.Changes = append(out.Changes, c.String())
	}
	return out
}

// summary counts the changes.
func summary(p *plan.Plan, host []string) string {
	var words []string
	if len(host) > 0 {
		words = append(words, fmt.Sprintf("%d changes beside the table", len(host)))
	}
	if len(p.Changes) > 0 || words == nil {
		words = append(words, p.Summary())
	}
	return strings.Join(words, ", ")
}
