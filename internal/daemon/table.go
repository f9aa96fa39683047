// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"time"

	"imbang/internal/daemon/apply"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
)

// table is the open director. One that was upgraded or made anew is opened again.
type table struct {
	d *director.Director
	// none: the configuration is of layer 7 alone, and there may be no director.
	none bool
}

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
// replaced. It does not call if none is needed.
func (t *table) use(f func(*director.Director) error) error {
	if t.none {
		return nil
	}
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
			for _, u := range apply.Apply(t, changes) {
				err = errors.Join(err, u)
			}
			if err != nil {
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
		d.setMissing(o.Services)
		if d.pending || len(d.behind) > 0 {
			d.seen = 0 // what is missing is the daemon's own, and not drift
			return nil
		}
		d.setDrift(d.remaining(o))
		return nil
	})
	if errors.Is(err, director.ErrNotLoaded) {
		d.noteMissing(nil, time.Now())
		d.seen = 0
	}
	if err != nil {
		d.raise(alarmDirector, err.Error())
		return
	}
	d.clear(alarmDirector)
}
