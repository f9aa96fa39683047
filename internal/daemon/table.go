// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"strings"

	"imbang/internal/daemon/apply"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/model"
)

// table is the open director. One that was upgraded or made anew is opened again.
type table struct{ d *director.Director }

func (t *table) open() (*director.Director, error) {
	if t.d != nil {
		return t.d, nil
	}
	d, err := director.Open()
	if err == nil {
		t.d = d
	}
	return d, err
}

func (t *table) close() {
	if t.d != nil {
		_ = t.d.Close()
		t.d = nil
	}
}

// use calls with the director, and again with one that is opened anew if that was
// replaced.
func (t *table) use(f func(*director.Director) error) error {
	for again := false; ; again = true {
		d, err := t.open()
		if err != nil {
			return err
		}
		err = f(d)
		gone := errors.Is(err, director.ErrReplaced) || errors.Is(err, director.ErrNotLoaded)
		if gone {
			t.close()
		}
		if !gone || again {
			return err
		}
	}
}

// Alarms of the table.
const (
	alarmDirector = "director" // there is none, or it cannot be read
	alarmApply    = "apply"    // the director refused what the configuration says
)

// edit carries changes out that the daemon decided on. A server that others have
// deleted is left alone: that is drift.
func (d *Daemon) edit(changes []plan.Change) {
	err := d.table.use(func(t *director.Director) error { return apply.Apply(t, changes) })
	var failed []string
	for _, one := range split(err) {
		if !errors.Is(one, model.ErrNoServer) && !errors.Is(one, model.ErrNoService) && !errors.Is(one, model.ErrServerExists) {
			failed = append(failed, one.Error())
		}
	}
	if failed != nil {
		d.raise(alarmApply, strings.Join(failed, "; "))
		return
	}
	d.clear(alarmApply)
}

// split takes joined errors apart.
func split(err error) []error {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		var all []error
		for _, one := range many.Unwrap() {
			all = append(all, split(one)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// look looks whether others have changed the table: what the daemon owns of it, the
// health of servers, is set again, the rest is shown as drift.
func (d *Daemon) look() {
	err := d.table.use(func(t *director.Director) error {
		now, err := t.Generation()
		if err != nil || now == d.seen {
			return err
		}
		o, err := apply.Observe(t)
		if err != nil {
			return err
		}
		if changes := plan.Assert(d.asserted, o.Services); len(changes) > 0 {
			if err := apply.Apply(t, changes); err != nil {
				return err
			}
			if o, err = apply.Observe(t); err != nil {
				return err
			}
			if now, err = t.Generation(); err != nil {
				return err
			}
		}
		d.seen = now
		d.setDrift(plan.Make(d.core.Wanted(), d.applied, o))
		return nil
	})
	if err != nil {
		d.raise(alarmDirector, err.Error())
		return
	}
	d.clear(alarmDirector)
}
