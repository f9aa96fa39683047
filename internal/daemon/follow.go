// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/daemon/apply"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/model"
)

// retryEvery is how often changes that failed are tried again: each try may wait for
// the director's lock.
const retryEvery = 5 * time.Second

// carry makes changes, and returns what was not done. If the director was replaced
// meanwhile, the rest is made on the new one.
func (d *Daemon) carry(changes []plan.Change) (undone []*apply.Undone) {
	if len(changes) == 0 {
		return nil
	}
	err := d.table.use(func(t *director.Director) error {
		undone = apply.Apply(t, changes)
		if len(undone) == 0 {
			return nil
		}
		changes = nil
		for _, u := range undone {
			changes = append(changes, u.Change)
		}
		return undone[len(undone)-1].Err // use looks whether it is of a director that is gone
	})
	if err != nil && len(undone) == 0 {
		for _, c := range changes {
			undone = append(undone, &apply.Undone{Change: c, Err: err})
		}
	}
	return undone
}

// isGone reports whether a change failed because others deleted what it is about.
func isGone(err error) bool {
	return errors.Is(err, model.ErrNoServer) || errors.Is(err, model.ErrNoService)
}

// follow has the table, and layer 7, follow what the core wants of services.
func (d *Daemon) follow(ids []operator.ServiceID) {
	var keys []model.ServiceKey
	backends := false
	for _, id := range ids {
		if id.Backend != "" {
			backends = true
		} else {
			keys = append(keys, id.Key)
		}
	}
	if backends {
		d.followLayer7(time.Now())
	}
	if len(keys) > 0 {
		d.followTable(keys)
	}
}

// followTable has the table follow. Of a server whose changes fail, what was made of it before
// stays in d.asserted, so that they are tried again.
func (d *Daemon) followTable(keys []model.ServiceKey) {
	var changes []plan.Change
	for i, k := range keys {
		is, ok := d.core.WantedService(k)
		at := d.assertedAt(k)
		if !ok || at < 0 || slices.Contains(keys[:i], k) {
			continue
		}
		for _, c := range plan.Follow(d.asserted.Services[at], is) {
			// What others deleted is added again by a reload only.
			if c.Kind != plan.AddServer || !d.deleted[serverID(k, c.Server.AddrPort())] {
				changes = append(changes, c)
			}
		}
	}
	plan.Sort(changes)
	failed := map[operator.ServerID]bool{}
	var texts []string
	for _, u := range d.carry(changes) {
		id := serverID(u.Service.Key, u.Server.AddrPort())
		switch {
		case isGone(u.Err):
			if u.Kind == plan.DeleteServer {
				d.deleted[id] = true
			}
		case errors.Is(u.Err, model.ErrServerExists):
		default:
			failed[id] = true
			texts = append(texts, u.Error())
		}
	}
	for _, k := range keys {
		if is, ok := d.core.WantedService(k); ok {
			d.assert(k, is, failed)
		}
	}
	if len(changes) > 0 {
		d.unsaved = true
		d.applies(texts)
	}
	// The table does not tell who removed a server.
	if slices.ContainsFunc(changes, func(c plan.Change) bool { return c.Kind == plan.DeleteServer || c.Kind == plan.AddServer }) {
		d.save()
	}
}

func serverID(k model.ServiceKey, at netip.AddrPort) operator.ServerID {
	return operator.ServerID{Service: operator.ServiceID{Key: k}, Server: at}
}

func (d *Daemon) assertedAt(k model.ServiceKey) int {
	return slices.IndexFunc(d.asserted.Services, func(s plan.Service) bool { return s.Key == k })
}

// assert notes what was made of a service, but for servers whose changes failed.
func (d *Daemon) assert(k model.ServiceKey, is plan.Service, failed map[operator.ServerID]bool) {
	at := d.assertedAt(k)
	if at < 0 {
		return
	}
	delete(d.behind, k)
	before := map[netip.AddrPort]plan.Server{}
	for _, one := range d.asserted.Services[at].Servers {
		before[one.AddrPort()] = one
	}
	is.Servers = slices.Clone(is.Servers)
	for i, one := range is.Servers {
		if failed[serverID(k, one.AddrPort())] {
			is.Servers[i] = before[one.AddrPort()]
			d.behind[k] = true
		}
	}
	d.asserted.Services[at] = is
}

// applies raises the alarm of changes that failed, or clears it if none is left.
func (d *Daemon) applies(texts []string) {
	switch {
	case len(texts) > 0:
		const shown = 3
		text := strings.Join(texts[:min(len(texts), shown)], "; ")
		if len(texts) > shown {
			text += fmt.Sprintf("; and %d more", len(texts)-shown)
		}
		d.raise(alarmApply, text+". It is tried again")
	case !d.pending && len(d.behind) == 0:
		d.clear(alarmApply)
	}
}

// catchUp tries again what failed.
func (d *Daemon) catchUp() {
	if !d.pending && len(d.behind) == 0 || time.Since(d.retried) < retryEvery {
		return
	}
	d.retried = time.Now()
	if d.pending {
		d.tryAgain()
		return
	}
	var keys []model.ServiceKey
	for k := range d.behind {
		keys = append(keys, k)
	}
	d.followTable(keys)
}
