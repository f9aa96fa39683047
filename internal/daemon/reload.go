// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/apply"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/model"
	"imbang/internal/strictyaml"
)

// begin applies the configuration for the first time. If the director is the one that
// the last daemon left, and that one applied the same configuration, no change is due but
// of health.
func (d *Daemon) begin(c *config.Config, book operator.Book) error {
	checkers, err := makeCheckers(c)
	if err != nil {
		return err
	}
	r := d.recall()
	if err := d.recallAddresses(r); err != nil {
		return err
	}
	d.applied = r.Applied
	if err := d.load(c); err != nil {
		return err
	}
	id, o, err := d.observe()
	if err != nil {
		return err
	}
	same := r.Director == id
	next, p := d.beginning(c, book, &r, o, same)
	d.deleted = r.deleted()
	if p == nil {
		d.deleted = map[operator.ServerID]bool{} // all of the table is made as configured
		p = plan.Make(next.Wanted(), r.Applied, o)
	} else {
		p.Named = r.Applied.Named()
	}
	refused := d.allowed(c, p, carry.LastConfig(d.layer7.dir), d.Force)
	if refused != nil && !d.keepsSurplus(c, p, next) {
		return fmt.Errorf("%w. The daemon does not start: correct %s, or apply it once with imbang run --force", refused, d.File)
	}
	d.core, d.checkers, d.applied, d.due = next, checkers, r.Applied, services(r.Due)
	d.enterDue(next.Begun.New)
	if d.surplus {
		d.raise(alarmMaxRemoved, fmt.Sprintf("%s no longer has %d of %d servers, more than daemon.max_removed: they stay in the table, and are not checked. imbang plan lists them, imbang reload --force deletes them", d.File, p.Removed, p.Named))
	}
	d.keepHost()
	err = d.finish(p, nil, "start")
	d.tell(next.Begun)
	if errors.As(err, new(*incomplete)) {
		return nil // the alarm says so
	}
	return err
}

// alarmMaxRemoved is raised while servers stay in the table that a daemon found too many to delete when
// it began.
const alarmMaxRemoved = "max-removed"

// keepsSurplus has a plan that deletes too many servers keep them, and their services and addresses, as
// without a daemon no server would be checked. It does not if servers of layer 7 are among them: HAProxy
// goes on with its configuration and checks without a daemon.
func (d *Daemon) keepsSurplus(c *config.Config, p *plan.Plan, next *core.Core) bool {
	if _, removed := l7.Removed(carry.LastConfig(d.layer7.dir), layer7Of(c)); removed > 0 {
		return false
	}
	d.surplus = true
	p.Keep(next.Wanted())
	return true
}

// remaining is what leads from a table to the one that is wanted.
func (d *Daemon) remaining(o plan.Observed) *plan.Plan {
	p := plan.Make(d.core.Wanted(), d.applied, o)
	if d.surplus {
		p.Keep(d.core.Wanted())
	}
	return p
}

// beginning is what a daemon begins with: by the record, if that is of the same director,
// which is emptied otherwise. The plan is that of the table and the configuration of the
// last daemon; it is nil if all of the table is to be compared.
func (d *Daemon) beginning(c *config.Config, book operator.Book, r *record, o plan.Observed, same bool) (*core.Core, *plan.Plan) {
	if !same {
		next := core.Restart(c, book, r.core(), time.Now())
		*r = record{}
		return next, nil
	}
	next := core.New(c, book, d.known(c, *r, o), time.Now())
	if r.Pending || !reflect.DeepEqual(normal(r.Applied), normal(next.Configured())) {
		return next, nil
	}
	return next, &plan.Plan{Changes: plan.Assert(next.Wanted(), o.Services)}
}

// observe reads the table and whose it is.
func (d *Daemon) observe() (id string, o plan.Observed, err error) {
	err = d.table.use(func(t *director.Director) (err error) {
		if id, err = t.Identity(); err == nil {
			o, err = apply.Observe(t)
		}
		return err
	})
	return id, o, err
}

// known is what is remembered of checks. The table knows better which servers are down: the
// last daemon may have been killed before it wrote that down.
func (d *Daemon) known(c *config.Config, r record, o plan.Observed) core.Memory {
	memory := r.core()
	down := map[operator.ServerID]bool{}
	for _, s := range o.Services {
		for _, one := range s.Servers {
			down[operator.ServerID{Service: operator.ServiceID{Key: s.Key}, Server: one.AddrPort()}] = one.Health == model.Down
		}
	}
	for _, s := range c.Services {
		if s.Sorry == nil || slices.ContainsFunc(s.Servers, func(one config.Server) bool { return one.AddrPort() == s.Sorry.AddrPort() }) {
			continue // of a server that is both, the record has the quorum
		}
		if _, serves := down[operator.ServerID{Service: s.ID(), Server: s.Sorry.AddrPort()}]; serves {
			memory.Quorum[s.ID()] = false
		}
	}
	lastDown, lastUp := d.lastDown(c)
	for id, down7 := range lastDown {
		down[id] = down7
	}
	memory.Up(c, lastUp, time.Now())
	memory.Down(c, down, time.Now())
	return memory
}

// load loads and attaches the director if the configuration says how; otherwise there
// has to be one.
func (d *Daemon) load(c *config.Config) error {
	if !c.NamesDirector() && len(d.applied.Services) == 0 && (c.Layer7 != nil || d.table.none) {
		d.table.close()
		d.table.none = true
		return nil
	}
	was := d.table.none
	d.table.none = false
	if c.Director == nil {
		err := d.table.use(func(*director.Director) error { return nil })
		d.table.none = was && err != nil
		return err
	}
	if d.table.d == nil {
		// The kernel checks the programs for seconds, on a busy machine for longer.
		d.Log.Info("the director is opened, or loaded if there is none")
	}
	t, err := director.OpenOrLoad(director.Sizes{Services: c.Director.MaxServices, Servers: c.Director.MaxServers, Connections: c.Director.MaxConnections})
	if err != nil {
		return err
	}
	// Checks under way are steered by the handle that is open.
	if d.table.d != nil && sameDirector(d.table.d, t) {
		return t.Close()
	}
	d.table.close()
	d.table.d = t
	return nil
}

// sameDirector reports whether a handle that was opened earlier is as good as a new one.
func sameDirector(old, now *director.Director) bool {
	was, err := old.Identity()
	is, err2 := now.Identity()
	_, err3 := old.Generation() // it was upgraded since
	return errors.Join(err, err2, err3) == nil && was == is
}

// allowed counts the servers of backends with those of the plan, and refuses to remove more than the
// configuration allows of both. was is what HAProxy does; nil: nothing.
func (d *Daemon) allowed(c *config.Config, p *plan.Plan, was *l7.Config, force bool) error {
	named, removed := l7.Removed(was, layer7Of(c))
	p.Named, p.Removed = p.Named+named, p.Removed+removed
	if p.RemovedShare() > c.Daemon.MaxRemoved && !force {
		return api.Conflict(fmt.Errorf("refused: %d of %d servers would be deleted, more than daemon.max_removed of %.0f %% (imbang plan lists them; --force does it)",
			p.Removed, p.Named, 100*c.Daemon.MaxRemoved))
	}
	return nil
}

// incomplete is the error of a configuration that was applied in part.
type incomplete struct{ err error }

func (i *incomplete) Error() string { return i.err.Error() }

func (i *incomplete) Unwrap() error { return i.err }

// finish carries a plan out. Until that is done, the record says that it is under way and
// names what either configuration names, so that nothing is left without an owner
// whenever the daemon is killed.
func (d *Daemon) finish(p *plan.Plan, host []string, why string) error {
	d.pending, d.behind = true, map[model.ServiceKey]bool{}
	d.applied = plan.Union(d.core.Configured(), d.applied)
	if !p.Empty() {
		if err := d.remember(); err != nil {
			d.raise(alarmRecord, err.Error())
		}
	}
	undone := d.carry(p.Changes)
	d.asserted, d.seen = d.core.Wanted(), 0
	d.reloaded, d.retried = time.Now(), time.Now()
	failed := map[string]bool{}
	for _, u := range undone {
		failed[u.String()] = true
	}
	err := d.conclude(undone, len(p.Changes))
	if err == nil {
		d.note(events.Event{Kind: events.Reloaded, Text: why + ": " + summary(p, host)})
	}
	for _, c := range p.Changes {
		if !failed[c.String()] {
			d.note(events.Event{Kind: events.Changed, Text: c.String()})
		}
	}
	return err
}

// conclude ends a configuration's being carried out, unless something of it failed. What
// was to be deleted and is gone did not.
func (d *Daemon) conclude(undone []*apply.Undone, of int) error {
	var texts []string
	for _, u := range undone {
		if !isGone(u.Err) || u.Kind != plan.DeleteServer && u.Kind != plan.DeleteService {
			texts = append(texts, u.Error())
		}
	}
	var err error
	if d.pending = len(texts) > 0; d.pending {
		err = &incomplete{fmt.Errorf("%d of %d changes failed, and are tried again: %s", len(texts), of, texts[0])}
	} else if !d.surplus {
		d.applied = d.core.Configured()
	}
	d.applies(texts)
	d.failure = err
	if err := d.remember(); err != nil {
		d.raise(alarmRecord, err.Error())
	}
	return err
}

// tryAgain carries out what is left of a configuration that was applied in part.
func (d *Daemon) tryAgain() {
	_, o, err := d.observe()
	if err != nil {
		d.raise(alarmDirector, err.Error())
		return
	}
	p := d.remaining(o)
	undone := d.carry(p.Changes)
	d.asserted, d.seen = d.core.Wanted(), 0
	if d.conclude(undone, len(p.Changes)) == nil {
		d.note(events.Event{Kind: events.Reloaded, Text: "the rest of the configuration: " + p.Summary()})
	}
}

// reload applies the configuration file again. One that is wrong, or removes too much,
// changes nothing. n is the file as it was checked before, nil: it was not.
func (d *Daemon) reload(n *candidate, force bool, by string) (*plan.Plan, []string, error) {
	p, host, err := d.tryReload(n, force, by)
	if err == nil {
		d.look() // a status that is asked for next has no drift that the reload ended
		return p, host, nil
	}
	text := "the configuration stays as it was: "
	if errors.As(err, new(*incomplete)) {
		text = "the configuration is applied in part: "
	}
	d.failure = err
	d.Log.Warn("reload failed", "error", oneLine(err))
	d.note(events.Event{Kind: events.ReloadFailed, Text: text + public(err), By: by})
	return p, host, err
}

// public is an error as every user may read it, in events: mistakes of a configuration
// quote what others may not read, and so does HAProxy.
func public(err error) string {
	var mistakes config.Mistakes
	if !errors.As(err, &mistakes) {
		return haproxy.Public(oneLine(err))
	}
	at := ""
	var first *strictyaml.Mistake
	if errors.As(err, &first) {
		at = fmt.Sprintf(", the first one at %s:%d:%d", first.File, first.Line, first.Column)
	}
	return fmt.Sprintf("it has %d mistakes%s (imbang status shows them to root and group %s)", len(mistakes), at, api.Group)
}

func (d *Daemon) tryReload(n *candidate, force bool, by string) (*plan.Plan, []string, error) {
	n = n.now(d)
	d.read = n.seen
	if n.err != nil {
		return nil, nil, n.err
	}
	c := n.config
	checkers, err := makeCheckers(c)
	if err != nil {
		return nil, nil, err
	}
	if !force {
		if err := d.devicesExist(c); err != nil {
			return nil, nil, err
		}
	}
	if n.refused != nil {
		return nil, nil, n.refused
	}
	if err := d.load(c); err != nil {
		return nil, nil, err
	}
	_, o, err := d.observe()
	if err != nil {
		return nil, nil, err
	}
	next, out := d.core.Reload(c, time.Now())
	p := plan.Make(next.Wanted(), d.applied, o)
	if err := d.allowed(c, p, layer7Of(d.core.Config), force); err != nil {
		return nil, nil, err
	}
	host := d.hostChanges(c)
	d.surplus = false
	d.clear(alarmMaxRemoved)
	d.core, d.checkers, d.deleted = next, checkers, map[operator.ServerID]bool{}
	d.enterDue(out.New)
	d.keepHost()
	err = d.finish(p, host, "reload by "+by)
	d.serveMetrics()
	d.setSynchronization()
	d.setLayer7(time.Now())
	d.tell(out)
	d.setJobs()
	d.setPair()
	return p, host, err
}

// makeCheckers reads what checks need: certificates, secrets.
func makeCheckers(c *config.Config) (map[*config.Check]check.Checker, error) {
	all := map[*config.Check]check.Checker{}
	var failed error
	for s := range c.Pools() {
		for _, one := range s.Servers {
			for _, ch := range one.Checks {
				if _, known := all[ch]; known {
					continue
				}
				made, err := ch.Spec.Checker()
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("check %s: %w", ch.Name, err))
				}
				all[ch] = made
			}
		}
	}
	return all, failed
}
