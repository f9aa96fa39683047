// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"math/rand/v2"
	"time"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// Config is a study with what the command line changed.
type Config struct {
	Study *study.Study
	// Name is how the user called the study.
	Name        string
	Out         string
	Plan        record.Plan
	CommandLine []string
	Version     string // of this program
	Executable  string // this program
}

// NewPlan is the plan that a study describes, before any flag. quick shortens
// the cells.
func NewPlan(s *study.Study, quick bool) record.Plan {
	p := record.Plan{
		Engines: s.Engines, Schedulers: s.Schedulers, Rates: s.Rates, Arrivals: s.Arrivals,
		Repeats: s.Repeats, Connections: s.Connections, Duration: s.Duration,
		Timeout: s.Timeout, Warmup: 200 * time.Millisecond,
	}
	if quick {
		p.Quick, p.Repeats, p.Connections, p.Duration = true, s.Quick.Repeats, 0, s.Quick.Duration
		p.Warmup, p.Timeout = 50*time.Millisecond, min(p.Timeout, time.Second)
	}
	return p
}

// quickBudget is how long a quick run may be expected to take; a slow machine
// gets fewer blocks rather than a longer wait.
const quickBudget = 68 * time.Second

// settleAtMost bounds the wait for a quiet machine before a cell.
func settleAtMost(p record.Plan) time.Duration {
	if p.Quick {
		return 150 * time.Millisecond
	}
	return time.Second
}

// cells lists every cell of one block, in table order.
func cells(p record.Plan, engines []engine.Engine) []record.Cell {
	var list []record.Cell
	for _, e := range engines {
		for _, arrivals := range p.Arrivals {
			for _, rate := range p.Rates {
				for _, s := range schedulersOf(e, p) {
					list = append(list, record.Cell{Engine: e.Name(), Scheduler: s, Rate: rate, Arrivals: arrivals})
				}
			}
		}
	}
	return list
}

// schedulersOf lists what an engine is measured with.
func schedulersOf(e engine.Engine, p record.Plan) []string {
	if e.Balances() {
		return p.Schedulers
	}
	return []string{""}
}

// schedule puts the cells into the order in which they are measured: every
// block holds each cell once, shuffled. The machine's speed drifts within
// minutes; so it meets all cells alike, and cells of one block are neighbours
// in time. Equal seeds give equal orders.
func schedule(list []record.Cell, blocks int, seed uint64) [][]record.Cell {
	order := make([][]record.Cell, blocks)
	for b := range order {
		rng := rand.New(rand.NewPCG(seed, uint64(b)))
		order[b] = append([]record.Cell(nil), list...)
		rng.Shuffle(len(list), func(i, j int) { order[b][i], order[b][j] = order[b][j], order[b][i] })
	}
	return order
}

// Expected is about how long a cell's load takes.
func Expected(p record.Plan, c record.Cell) time.Duration {
	window := p.Duration
	if p.Connections > 0 {
		window = time.Duration(float64(p.Connections) / c.Rate * float64(time.Second))
	}
	return p.Warmup + window
}

// arrivalsOf translates a name that the study has checked.
func arrivalsOf(name string) (load.Arrivals, error) {
	a, err := load.ParseArrivals(name)
	if err != nil {
		return a, fmt.Errorf("study: %w", err)
	}
	return a, nil
}
