// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/events"
	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/keep"
)

// alarmSync is raised while a role of synchronization fails, with the role's name behind
// it; alarmMissing while a backup's table lacks what the master has.
const (
	alarmSync    = "synchronization-"
	alarmMissing = "synchronization-missing"
)

// setSynchronization starts and stops roles as the configuration says.
func (d *Daemon) setSynchronization() {
	d.noteRoles(d.sync.Set(d.core.Config.Roles, time.Now()))
	d.setReplication(d.core.Config.Replication)
}

// keepSynchronization notices what has become of the roles, and starts failed ones again.
func (d *Daemon) keepSynchronization() {
	d.keepReplication()
	d.noteRoles(d.sync.Look(time.Now()))
	var missing []synchronize.Missing
	for _, r := range d.sync.Roles() {
		missing = append(missing, r.Missing...)
	}
	if len(missing) == 0 {
		d.clear(alarmMissing)
		return
	}
	d.raise(alarmMissing, missingText(missing))
}

// noteRoles notes what has become of roles: failures as alarms, the rest as events.
func (d *Daemon) noteRoles(changes []keep.Change) {
	for _, c := range changes {
		alarm := alarmSync + string(c.Config.Role)
		if c.State == keep.Failed {
			// Without the time of the next try, which would make each failure a new alarm.
			d.raise(alarm, oneLine(c.Err)+". The role is started again")
			d.Log.Warn("synchronization role failed", "role", string(c.Config.Role), "error", oneLine(c.Err), "retry", c.Retry)
			continue
		}
		d.clear(alarm)
		d.note(events.Event{Kind: events.Synchronization, Text: string(c.Config.Role) + ": " + c.Text})
	}
}

// missingText says what a backup's table lacks. The number of entries is left out: it
// changes all the time, and the status has it.
func missingText(missing []synchronize.Missing) string {
	const shown = 3
	var words []string
	for _, m := range missing[:min(len(missing), shown)] {
		words = append(words, m.String())
	}
	if more := len(missing) - shown; more > 0 {
		words = append(words, fmt.Sprintf("%d more", more))
	}
	return "the master has what this table lacks, and connections of it cannot be entered: " + strings.Join(words, ", ")
}

// synchronization is the roles as the API has them.
func (d *Daemon) synchronization() []api.Synchronization {
	out := []api.Synchronization{}
	for _, r := range d.sync.Roles() {
		out = append(out, syncRole(r))
	}
	return out
}

func syncRole(r keep.Role) api.Synchronization {
	c := r.Config
	s := api.Synchronization{
		Role: string(c.Role), State: string(r.State), Since: r.Since, Interface: c.Interface, SyncID: c.SyncID,
		Group: cmp.Or(c.Group, synchronize.DefaultGroup()).String(), Port: cmp.Or(c.Port, synchronize.DefaultPort), TTL: cmp.Or(c.TTL, synchronize.DefaultTTL), MaxLength: c.MaxLen,
		Retry: r.Retry, Messages: r.Counts.Messages.Load(), Entries: r.Counts.Records.Load(), Bytes: r.Counts.Bytes.Load(),
		Last: r.Counts.Last(), Lost: r.Counts.Lost.Load(), Unbound: r.Counts.Unbound.Load(), Bound: r.Counts.Bound.Load(),
	}
	if r.Err != nil {
		s.Error = r.Err.Error()
	}
	for _, reason := range synchronize.Reasons() {
		if (reason <= synchronize.DropSend) != (c.Role == synchronize.RoleMaster) {
			continue // of the other role
		}
		of := "entries"
		if reason.OfMessages() {
			of = "messages"
		}
		s.Dropped = append(s.Dropped, api.SyncDropped{Reason: reason.String(), Of: of, Count: r.Counts.Dropped(reason)})
	}
	for _, m := range r.Missing {
		one := api.SyncMissing{Service: m.Service, Entries: m.Entries}
		if m.Server.IsValid() {
			one.Server = m.Server.String()
		}
		s.Missing = append(s.Missing, one)
	}
	return s
}

// roleChanges are what applying a configuration changes of the roles, one line each.
func roleChanges(now, next []synchronize.Config) (lines []string) {
	was := map[synchronize.Role]synchronize.Config{}
	for _, c := range now {
		was[c.Role] = c
		if !slices.ContainsFunc(next, func(n synchronize.Config) bool { return n.Role == c.Role }) {
			lines = append(lines, fmt.Sprintf("stop synchronization as %s on %s", c.Role, c.Interface))
		}
	}
	for _, c := range next {
		before, runs := was[c.Role]
		switch {
		case !runs:
			lines = append(lines, fmt.Sprintf("start synchronization as %s on %s", c.Role, c.Interface))
		case before != c:
			lines = append(lines, fmt.Sprintf("restart synchronization as %s on %s", c.Role, c.Interface))
		}
	}
	return lines
}
