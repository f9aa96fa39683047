// SPDX-License-Identifier: Apache-2.0

//go:build peer

package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"imbang/internal/lab/conform"
)

// start prepares a scenario and has the group synchronize.
func (g *group) start(s conform.Scenario, v variant) error {
	d := director{g.master, g}
	if err := g.Prepare(s); err != nil {
		return err
	}
	// The backups first: they miss nothing then.
	if err := d.each(func(m machine) error { return m.begin(s.Setup, "backup", v) }); err != nil {
		return err
	}
	g.started = true
	if g.change != nil {
		if err := g.change(g); err != nil {
			return err
		}
	}
	return g.master.begin(s.Setup, "master", v)
}

// looks are operations that change nothing.
var looks = map[string]bool{"counts": true, "conns": true}

// removes tells whether an operation takes servers away: "-d", "-D" or "-C" of ipvsadm. A
// master keeps messages for up to two seconds, so that what it told before may come to a
// backup after that. The connection then has no server there, and Linux binds it with a
// later message only: what backups hold would depend on who sent sooner.
func removes(kind string, op []json.RawMessage) bool {
	var command string
	return kind == "ipvsadm" && len(op) > 1 && json.Unmarshal(op[1], &command) == nil && removal.MatchString(command)
}

var removal = regexp.MustCompile(`^-[dDC]( |$)`)

// playAll plays a recording on several groups, operation by operation, and waits until
// everything was sent. It says where a master does not do as recorded: what it tells its
// backups is then not what the scenario is for.
func playAll(r conform.Recording, v variant, groups ...*group) (unlike []string, err error) {
	errs := make([]error, len(groups))
	got := make([]any, len(groups))
	all := func(do func(i int) error) error {
		var wait sync.WaitGroup
		for i := range groups {
			wait.Go(func() { errs[i] = do(i) })
		}
		wait.Wait()
		return errors.Join(errs...)
	}
	if err := all(func(i int) error { return groups[i].start(r.Scenario, v) }); err != nil {
		return nil, err
	}
	for n, op := range r.Scenario.Ops {
		var kind string
		if err := json.Unmarshal(op[0], &kind); err != nil {
			return nil, err
		}
		if looks[kind] {
			continue
		}
		if err := interrupted.Err(); err != nil {
			return nil, err
		}
		if removes(kind, op) {
			time.Sleep(flush)
		}
		if err := all(func(i int) (err error) {
			got[i], err = groups[i].Do(op, r.Results[n])
			return err
		}); err != nil {
			return nil, fmt.Errorf("operation %d: %w", n+1, err)
		}
		for i := range groups {
			have, err := json.Marshal(got[i])
			if err != nil {
				return nil, err
			}
			if string(have) != string(r.Results[n]) {
				unlike = append(unlike, fmt.Sprintf("group %d, operation %d %s: %s, recorded %s", i+1, n+1, op, have, r.Results[n]))
			}
		}
	}
	time.Sleep(flush)
	return unlike, nil
}

// tables reads the tables of machines at one time.
func tables(machines ...machine) ([]Table, error) {
	out, errs := make([]Table, len(machines)), make([]error, len(machines))
	var wait sync.WaitGroup
	for i, m := range machines {
		wait.Go(func() { out[i], errs[i] = m.table() })
	}
	wait.Wait()
	return out, errors.Join(errs...)
}
