// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/apply"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/model"
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
	if err := d.load(c); err != nil {
		return err
	}
	memory, err := d.known(c, r)
	if err != nil {
		return err
	}
	next := core.Restart(c, book, memory, time.Now())
	d.core, d.checkers = next, checkers
	d.keepHost()
	return d.table.use(func(t *director.Director) error {
		id, err := t.Identity()
		if err != nil {
			return err
		}
		if r.Director != id {
			r.Applied = plan.Table{}
		}
		o, err := apply.Observe(t)
		if err != nil {
			return err
		}
		configured, wanted := next.Configured(), next.Wanted()
		var p *plan.Plan
		if r.Director == id && reflect.DeepEqual(normal(r.Applied), normal(configured)) {
			p = &plan.Plan{Changes: plan.Assert(wanted, o.Services)}
		} else if p, err = d.allowed(c, wanted, r.Applied, o, d.Force); err != nil {
			return err
		}
		d.finish(t, p, "start")
		return nil
	})
}

// known is what is remembered of checks. The table knows better which servers are down: the
// last daemon may have been killed before it wrote that down.
func (d *Daemon) known(c *config.Config, r record) (core.Memory, error) {
	memory := r.Memory.core()
	err := d.table.use(func(t *director.Director) error {
		id, err := t.Identity()
		if err != nil || id != r.Director {
			return err
		}
		services, err := t.Services()
		if err != nil {
			return err
		}
		down := map[operator.ServerID]bool{}
		for _, s := range services {
			for _, one := range s.Servers {
				down[operator.ServerID{Service: s.Key, Server: one.AddrPort()}] = one.Health == model.Down
			}
		}
		memory.Down(c, down, time.Now())
		return nil
	})
	return memory, err
}

// load loads and attaches the director if the configuration says how; otherwise there
// has to be one.
func (d *Daemon) load(c *config.Config) error {
	if c.Director == nil {
		return d.table.use(func(*director.Director) error { return nil })
	}
	t, err := director.OpenOrLoad(director.Sizes{Services: c.Director.MaxServices, Servers: c.Director.MaxServers, Connections: c.Director.MaxConnections})
	if err != nil {
		return err
	}
	d.table.close()
	d.table.d = t
	return nil
}

// allowed plans, and refuses to remove more than the configuration allows.
func (d *Daemon) allowed(c *config.Config, wanted, applied plan.Table, o plan.Observed, force bool) (*plan.Plan, error) {
	p := plan.Make(wanted, applied, o)
	if p.RemovedShare() > c.Daemon.MaxRemoved && !force {
		return nil, api.Conflict(fmt.Errorf("refused: %d of %d servers would be deleted, more than daemon.max_removed of %.0f %% (imbang plan lists them; --force does it)",
			p.Removed, p.Named, 100*c.Daemon.MaxRemoved))
	}
	return p, nil
}

// finish carries a plan out and takes the core's table for the one that there is.
func (d *Daemon) finish(t *director.Director, p *plan.Plan, why string) {
	if err := apply.Apply(t, p.Changes); err != nil {
		d.raise(alarmApply, err.Error())
	} else {
		d.clear(alarmApply)
	}
	d.applied, d.asserted, d.seen = d.core.Configured(), d.core.Wanted(), 0
	d.reloaded, d.failure = time.Now(), nil
	if err := d.remember(); err != nil {
		d.raise(alarmRecord, err.Error())
	}
	d.note(events.Event{Kind: events.Reloaded, Text: why + ": " + p.Summary()})
	for _, c := range p.Changes {
		d.note(events.Event{Kind: events.Changed, Text: c.String()})
	}
}

// reload applies the configuration file again. One that is wrong, or removes too much,
// changes nothing.
func (d *Daemon) reload(force bool, by string) (*plan.Plan, error) {
	p, err := d.tryReload(force, by)
	if err != nil {
		d.failure = err
		d.note(events.Event{Kind: events.ReloadFailed, Text: "the configuration stays as it was: " + oneLine(err), By: by})
	}
	return p, err
}

func (d *Daemon) tryReload(force bool, by string) (p *plan.Plan, err error) {
	c, err := config.Load(d.File)
	if err != nil {
		return nil, err
	}
	checkers, err := makeCheckers(c)
	if err != nil {
		return nil, err
	}
	next := d.core.Reload(c, time.Now())
	if err := d.load(c); err != nil {
		return nil, err
	}
	err = d.table.use(func(t *director.Director) error {
		o, err := apply.Observe(t)
		if err != nil {
			return err
		}
		if p, err = d.allowed(c, next.Wanted(), d.applied, o, force); err != nil {
			return err
		}
		d.core, d.checkers = next, checkers
		d.keepHost()
		d.finish(t, p, "reload by "+by)
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.setJobs()
	return p, nil
}

// makeCheckers reads what checks need: certificates, secrets.
func makeCheckers(c *config.Config) (map[*config.Check]check.Checker, error) {
	all := map[*config.Check]check.Checker{}
	var failed error
	for _, s := range c.Services {
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
