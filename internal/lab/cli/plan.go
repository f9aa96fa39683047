// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/record"
	"imbang/internal/lab/run"
	"imbang/internal/lab/study"
)

// plan is the study's plan with the flags that were given. The study itself is
// checked; what flags can get wrong is refused here.
func (f *studyRun) plan(cmd *cobra.Command, s *study.Study) (record.Plan, error) {
	given := cmd.Flags().Changed
	changed := *s
	if err := errors.Join(f.changeLoad(given, &changed), f.changeCompetitors(given, &changed)); err != nil {
		return record.Plan{}, firstOf(err)
	}
	p := run.NewPlan(&changed, f.quick)
	if given("repeats") {
		if f.repeats < 1 {
			return p, fmt.Errorf("--repeats %d: want 1 or more", f.repeats)
		}
		p.Repeats, p.Most = f.repeats, max(f.repeats, p.Most)
	}
	if given("connections") && !f.quick {
		p.Connections, p.Duration = f.connections, 0
	}
	p.Seed = f.seed
	if !given("seed") {
		p.Seed = uint64(rand.Uint32()) // short enough to type again
	}
	return p, nil
}

// firstOf is the first of joined errors: one line is enough.
func firstOf(err error) error {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		return several.Unwrap()[0]
	}
	return err
}

func (f *studyRun) changeLoad(given func(string) bool, s *study.Study) error {
	l := &s.Load
	for flag, closed := range map[string]bool{"rates": false, "arrivals": false, "connections": false, "users": true} {
		switch {
		case given(flag) && l.Replay != nil:
			return fmt.Errorf("--%s: study %s replays a log, which says when what is sent", flag, s.Name)
		case given(flag) && l.Closed() != closed:
			return fmt.Errorf("--%s: study %s is %s", flag, s.Name, map[bool]string{true: "a closed loop, of users", false: "an open loop, of rates"}[l.Closed()])
		}
	}
	if given("rates") {
		l.Rates, l.Fractions, l.PublishedRates = f.rates, nil, nil
		l.ToolCells = slices.DeleteFunc(slices.Clone(l.ToolCells), func(t study.ToolCell) bool { return t.Fraction > 0 })
	}
	if given("users") {
		l.Users = f.users
	}
	if given("arrivals") {
		l.Arrivals = f.arrivals
	}
	if given("families") {
		for _, name := range f.families {
			if !slices.Contains(s.Families, name) {
				return fmt.Errorf("--families: %q is not of the study's: %s", name, strings.Join(s.Families, ", "))
			}
		}
		s.Families = f.families
	}
	for _, a := range l.Arrivals {
		if _, err := arrivals.Parse(a); err != nil {
			return fmt.Errorf("--arrivals: %w", err)
		}
	}
	for _, r := range l.Rates {
		if !(r > 0 && r <= 1e6) {
			return fmt.Errorf("--rates: %g is out of range: want connections per second, above 0 and at most 1000000", r)
		}
	}
	for _, n := range l.Users {
		if n < 1 || n > 100_000 {
			return fmt.Errorf("--users: %d is out of range: want 1 to 100000", n)
		}
	}
	if given("connections") && f.connections < 1 {
		return fmt.Errorf("--connections %d: want 1 or more", f.connections)
	}
	return errors.Join(each("rates", given, l.Rates), each("users", given, l.Users), each("arrivals", given, l.Arrivals), each("families", given, s.Families))
}

// each refuses a list with nothing in it, with nothing for an entry, and with
// one given twice.
func each[T comparable](flag string, given func(string) bool, list []T) error {
	var zero T
	switch {
	case !given(flag):
		return nil
	case len(list) == 0 || slices.Contains(list, zero):
		return fmt.Errorf("--%s: want at least one, and none empty", flag)
	case twice(list):
		return fmt.Errorf("--%s: one is given twice", flag)
	}
	return nil
}

// changeCompetitors keeps those of the engines that were asked for, adds
// engines that the study does not have, and exchanges the schedulers.
func (f *studyRun) changeCompetitors(given func(string) bool, s *study.Study) error {
	if err := errors.Join(each("engines", given, f.engines), each("schedulers", given, f.schedulers)); err != nil {
		return err
	}
	if !given("engines") && !given("schedulers") {
		return nil
	}
	engines := f.engines
	if !given("engines") {
		for _, c := range s.Competitors {
			if !slices.Contains(engines, c.Engine) {
				engines = append(engines, c.Engine)
			}
		}
	}
	old := s.Competitors
	s.Competitors = nil
	for _, name := range engines {
		e, ok := engine.New(name, "")
		if !ok {
			return fmt.Errorf("--engines: %q is unknown: want some of %s", name, strings.Join(engine.Names(), ", "))
		}
		if !e.Balances() && s.VirtualAddresses > 1 {
			return fmt.Errorf("--engines: %s is reached at a server's own address, and study %s has %d virtual ones", name, s.Name, s.VirtualAddresses)
		}
		mine := slices.DeleteFunc(slices.Clone(old), func(c study.Competitor) bool { return c.Engine != name })
		if len(mine) == 0 || given("schedulers") && e.Balances() {
			mine = f.make(e, s, old)
		}
		s.Competitors = append(s.Competitors, mine...)
	}
	study.NameAll(s)
	return nil
}

// make makes competitors of an engine with the schedulers that were asked for,
// or the study's.
func (f *studyRun) make(e engine.Engine, s *study.Study, old []study.Competitor) (list []study.Competitor) {
	one := study.Competitor{Engine: e.Name(), Weights: s.Weights[0].Name, Servers: len(s.Servers)}
	if !e.Balances() {
		one.Servers = 1
		return []study.Competitor{one}
	}
	schedulers := f.schedulers
	for _, c := range old {
		if len(f.schedulers) == 0 && c.Scheduler != "" && !slices.Contains(schedulers, c.Scheduler) {
			schedulers = append(schedulers, c.Scheduler)
		}
	}
	for _, name := range schedulers {
		one.Scheduler = name
		list = append(list, one)
	}
	return list
}

func twice[T comparable](list []T) bool {
	for i, v := range list {
		if slices.Index(list, v) != i {
			return true
		}
	}
	return false
}
