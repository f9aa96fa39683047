// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"imbang/internal/lab/record"
)

// measureAll measures every cell of every block that is not stored yet.
func (l *lab) measureAll(ctx context.Context) error {
	plan := l.config.Plan
	list := plan.Measured()
	l.announce(list, plan.Repeats)
	began := time.Now()
	for b := 0; ; b++ {
		switch {
		case b < plan.Repeats && b > 0 && plan.Quick && tooSlow(l.piloted, time.Since(began), b):
			return l.endAfter(b)
		case b >= plan.Repeats && !l.another(b, time.Since(began)):
			return l.endAfter(b)
		case b >= plan.Repeats:
			if err := l.extend(b + 1); err != nil {
				return err
			}
			l.announce(list, b+1)
		}
		order := block(list, b, plan.Seed)
		if err := l.measureBlock(ctx, b, order); err != nil {
			return err
		}
	}
}

// extend makes so many blocks the plan, before the first run of the last one: a
// run that is interrupted in an added block says how many it planned, and one
// that goes on finishes that block first.
func (l *lab) extend(blocks int) error {
	return l.plan(max(blocks, l.env.Plan.Repeats))
}

// plan stores how many blocks the plan has.
func (l *lab) plan(blocks int) error {
	if blocks == l.env.Plan.Repeats {
		return nil
	}
	l.env.Plan.Repeats = blocks
	return l.out.Environment(l.env)
}

// announce tells how long a number of blocks is expected to take.
func (l *lab) announce(list []record.Cell, blocks int) {
	var expected []time.Duration
	for b := range blocks {
		for _, c := range block(list, b, l.config.Plan.Seed) {
			if !l.done(c, b+1) {
				expected = append(expected, Expected(l.config.Plan, c))
			}
		}
	}
	if l.outcome.Measured+l.outcome.Failed > 0 { // samples of this run are among the done
		expected = append(make([]time.Duration, l.outcome.Measured+l.outcome.Failed), expected...)
	}
	l.outcome.Planned = len(expected)
	l.watch.Planned(expected)
}

// done reports whether a cell of a block, counted from 1, is stored.
func (l *lab) done(c record.Cell, block int) bool {
	return slices.ContainsFunc(l.samples, func(s record.Sample) bool { return s.Cell == c && s.Block == block })
}

// another reports whether block b, counted from 0, is wanted beyond the
// planned ones.
func (l *lab) another(b int, elapsed time.Duration) bool {
	p := l.config.Plan
	if b >= p.Most || p.Until == 0 || l.config.Enough == nil {
		return false
	}
	if p.Budget > 0 && elapsed+elapsed/time.Duration(b) > p.Budget {
		l.watch.Note(fmt.Sprintf("the budget of %v is spent after %d blocks", p.Budget, b))
		return false
	}
	return !l.config.Enough(p, l.samples)
}

// measureBlock measures the cells of block b, counted from 0, that are not
// stored yet.
func (l *lab) measureBlock(ctx context.Context, b int, order []record.Cell) error {
	for _, c := range order {
		if l.done(c, b+1) {
			continue
		}
		if err := l.measureCell(ctx, record.Sample{Cell: c, Block: b + 1}); err != nil {
			return err
		}
	}
	return nil
}

// tooSlow reports whether another block of a quick run would go beyond what a
// quick run may take, by the time that the pilot and the blocks so far took.
func tooSlow(pilot, elapsed time.Duration, blocks int) bool {
	return pilot+elapsed+elapsed/time.Duration(blocks) > quickBudget
}

// endAfter makes the blocks measured so far the whole run.
func (l *lab) endAfter(blocks int) error {
	if blocks < l.env.Plan.Repeats {
		l.watch.Note(fmt.Sprintf("this machine is too slow for %d runs a cell in %v: ending after %d", l.env.Plan.Repeats, quickBudget, blocks))
	}
	l.outcome.Planned = l.outcome.Measured + l.outcome.Failed
	return l.plan(blocks)
}

// measureCell measures one cell and stores what came of it. An error ends the
// run; a cell that failed does not.
func (l *lab) measureCell(ctx context.Context, s record.Sample) error {
	l.watch.Began(s.Cell)
	l.order++
	s.Started, s.Order = time.Now(), l.order
	err := l.measure(ctx, &s)
	if ctx.Err() != nil {
		return ctx.Err() // a cell cut short is no measurement
	}
	if err != nil {
		s.Error, s.Load = err.Error(), nil
		l.outcome.Failed++
	} else {
		l.outcome.Measured++
	}
	if err := l.out.Sample(s); err != nil {
		return err
	}
	l.samples = append(l.samples, s)
	l.watch.Ended(s)
	return nil
}
