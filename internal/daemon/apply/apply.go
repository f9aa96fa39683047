// SPDX-License-Identifier: Apache-2.0

// Package apply is where the daemon meets the director: it reads what a plan is
// compared with, and carries plans out. It decides nothing.
package apply

import (
	"errors"
	"fmt"
	"time"

	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/model"
)

// Observe reads the table.
func Observe(d *director.Director) (o plan.Observed, err error) {
	if o.Services, err = d.Services(); err != nil {
		return o, err
	}
	settings, err := d.Settings()
	if err != nil {
		return o, err
	}
	for _, s := range settings {
		o.Settings = append(o.Settings, plan.Setting{Name: s.Name, Value: s.Value})
	}
	o.Timeouts, err = d.Timeouts()
	return o, err
}

// hold is how long a batch has the director's lock at most, about: others wait for
// it meanwhile.
const hold = 25 * time.Millisecond

// Undone is a change that was not made.
type Undone struct {
	plan.Change
	Err error
}

func (u *Undone) Error() string { return fmt.Sprintf("%s: %v", u.Change, u.Err) }

func (u *Undone) Unwrap() error { return u.Err }

// Apply carries a plan out, in its order, and returns what was not done. What the
// director refuses does not keep the rest from being made; without the director, or
// its lock, nothing more is tried.
func Apply(d *director.Director, changes []plan.Change) (undone []*Undone) {
	for len(changes) > 0 {
		err := d.Batch(func() error {
			until := time.Now().Add(hold)
			for len(changes) > 0 && time.Now().Before(until) {
				err := one(d, changes[0])
				if lost(err) {
					return err
				}
				if err != nil {
					undone = append(undone, &Undone{changes[0], err})
				}
				changes = changes[1:]
			}
			return nil
		})
		if err != nil {
			for _, c := range changes {
				undone = append(undone, &Undone{c, err})
			}
			return undone
		}
	}
	return undone
}

// lost reports whether a handle is of no use any more.
func lost(err error) bool {
	return errors.Is(err, director.ErrReplaced) || errors.Is(err, director.ErrNotLoaded)
}

func one(d *director.Director, c plan.Change) error {
	k, at := c.Service.Key, c.Server.AddrPort()
	switch c.Kind {
	case plan.Set:
		return d.Set(director.Setting{Name: c.Setting.Name, Value: c.Setting.Value})
	case plan.SetTimeouts:
		return d.SetTimeouts(c.Timeouts)
	case plan.AddService:
		return d.AddService(c.Service)
	case plan.EditService:
		return d.EditService(c.Service)
	case plan.DeleteService:
		return d.DeleteService(k)
	case plan.AddServer:
		return add(d, c)
	case plan.EditServer:
		return d.EditServer(k, c.Server)
	case plan.SetHealth:
		return d.SetHealth(k, at, c.Health)
	case plan.SetWeight:
		return d.SetWeight(k, at, c.Server.Weight)
	case plan.SetSlowStart:
		return d.SetSlowStart(k, at, c.SlowStart)
	case plan.SetDrain:
		return drain(d, c)
	case plan.DeleteServer:
		return d.DeleteServer(k, at)
	case plan.KeepService:
		return nil
	}
	return fmt.Errorf("%w: unknown kind of change %q", model.ErrInvalid, c.Kind)
}

// add adds a server. One that drains gets no connection before it does.
func add(d *director.Director, c plan.Change) error {
	if !c.Drain {
		return d.AddServerWith(c.Service.Key, c.Server, director.Begin{Health: c.Health, SlowStart: c.SlowStart})
	}
	if err := d.AddServerWith(c.Service.Key, c.Server, director.Begin{Health: model.Down, SlowStart: c.SlowStart}); err != nil {
		return err
	}
	if err := drain(d, c); err != nil {
		return err
	}
	return d.SetHealth(c.Service.Key, c.Server.AddrPort(), c.Health)
}

func drain(d *director.Director, c plan.Change) error {
	k, at := c.Service.Key, c.Server.AddrPort()
	switch {
	case !c.Drain:
		return d.EndDrain(k, at)
	case c.Until.IsZero():
		return d.Drain(k, at, 0)
	}
	return d.Drain(k, at, max(time.Until(c.Until), 1)) // one that is over still is a deadline
}
