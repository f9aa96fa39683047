// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/apply"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
)

// PlanAlone is what a daemon that began with a configuration file would change of the
// table, in this network namespace. Nothing is changed or loaded.
func PlanAlone(file string) (*api.Plan, error) {
	d := &Daemon{Options: Options{File: file, State: place.State}}
	c, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	if d.dir, err = place.Dir(); err != nil {
		return nil, err
	}
	book, err := operator.Load(d.bookFile())
	if err != nil {
		return nil, err
	}
	defer d.table.close()
	r := d.recall()
	var o plan.Observed
	err = d.table.use(func(t *director.Director) error {
		id, err := t.Identity()
		if err != nil {
			return err
		}
		if r.Director != id {
			r = record{}
		}
		o, err = apply.Observe(t)
		return err
	})
	none := errors.Is(err, director.ErrNotLoaded)
	if none {
		r = record{}
	} else if err != nil {
		return nil, err
	}
	if none {
		next := core.Restart(c, book, r.core(), time.Now())
		return planned(plan.Make(next.Wanted(), plan.Table{}, o)), nil
	}
	next := core.New(c, book, known(c, r, o), time.Now())
	if p := d.first(next, r, o, true); p != nil {
		return planned(p), nil
	}
	return planned(plan.Make(next.Wanted(), r.Applied, o)), nil
}
