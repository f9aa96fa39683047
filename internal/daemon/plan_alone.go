// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os/exec"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/l7/carry"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/place"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
)

// PlanAlone is what a daemon that began with a configuration file would change of the
// table, in this network namespace. Nothing is changed or loaded.
func PlanAlone(file, state string) (*api.Plan, error) {
	d := &Daemon{Options: Options{File: file, State: state}, added: map[config.Address]bool{}}
	var err error
	if d.dir, err = place.Dir(); err != nil {
		return nil, err
	}
	if d.layer7.dir, err = place.ProxyDir(); err != nil {
		return nil, err
	}
	n := d.candidate(file)
	if n.err != nil {
		return nil, n.err
	}
	if n.refused != nil && !errors.Is(n.refused, exec.ErrNotFound) {
		return nil, n.refused
	}
	c := n.config
	ledger, err := operator.Load(d.bookFile())
	if err != nil {
		return nil, err
	}
	defer d.table.close()
	r := d.recall()
	if err := d.recallAddresses(r); err != nil {
		return nil, err
	}
	id, o, err := d.observe()
	if err != nil && !errors.Is(err, director.ErrNotLoaded) {
		return nil, err
	}
	next, p := d.beginning(c, ledger.Book(), &r, o, err == nil && r.Director == id)
	if p == nil {
		p = plan.Make(next.Wanted(), r.Applied, o)
	}
	refused := d.allowed(c, p, carry.LastConfig(d.layer7.dir), false)
	if refused == nil {
		return planned(p, d.hostChanges(c)), nil
	}
	what := "imbang run does not start"
	if d.keepsSurplus(c, p, next) {
		clear(d.added) // which stay, too
		what = "imbang run keeps them at its start, unchecked"
	}
	reply := planned(p, d.hostChanges(c))
	reply.Warnings = []string{fmt.Sprintf("%s: %v", what, refused)}
	return reply, nil
}
