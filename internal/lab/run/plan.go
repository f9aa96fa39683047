// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"math/rand/v2"
	"time"

	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// NewPlan is the plan that a study describes. quick shortens the cells.
func NewPlan(s *study.Study, quick bool) record.Plan {
	p := record.Plan{
		Conditions: conditions(s, quick),
		Repeats:    s.Repeats.Least, Most: s.Repeats.Most, Until: s.Repeats.Until, Budget: s.Repeats.Budget,
		Connections: s.Load.Connections, Duration: s.Load.Duration, PerConnection: s.Load.PerConnection,
		Timeout: s.Load.Timeout, Warmup: 200 * time.Millisecond,
	}
	for _, c := range s.Competitors {
		p.Competitors = append(p.Competitors, record.Competitor(c))
	}
	if quick {
		p.Quick, p.Repeats, p.Connections, p.Duration = true, s.Quick.Repeats, 0, s.Quick.Duration
		p.Most, p.Until, p.Budget = 0, 0, 0
		p.Warmup, p.Timeout = 50*time.Millisecond, min(p.Timeout, time.Second)
	}
	if s.Load.Replay != nil {
		p.Warmup = 0 // a log's beginning is a part of it
	}
	p.Cells = len(p.Measured())
	return p
}

// conditions lists what all competitors meet. A quick look at a closed loop
// goes by time, whatever number of requests the study asks for.
func conditions(s *study.Study, quick bool) (list []record.Condition) {
	for _, level := range levels(&s.Load, quick) {
		for _, family := range s.Families {
			for _, call := range s.Load.Calls {
				for _, tool := range s.Load.Tools {
					c := level
					c.Family, c.Call, c.Tool, c.KeepAlive = family, call.Name, tool, call.KeepAlive
					list = append(list, c)
				}
			}
		}
	}
	if !quick {
		list = append(list, toolConditions(s)...)
	}
	return list
}

// toolConditions are those of the study's tool cells. A quick run has none: a
// tool's own parameters do not shorten.
func toolConditions(s *study.Study) (list []record.Condition) {
	for _, t := range s.Load.ToolCells {
		for _, family := range s.Families {
			for _, call := range t.Calls {
				c := record.Condition{
					Family: family, Call: call, Tool: t.Tool, Fraction: t.Fraction, Rate: t.Rate, Connections: t.Connections,
					Users: t.Users, Requests: t.Requests, KeepAlive: t.KeepAlive, Published: t.Published,
				}
				if !c.Closed() {
					c.Arrivals = "constant"
				}
				list = append(list, c)
			}
		}
	}
	return list
}

func levels(l *study.Load, quick bool) (list []record.Condition) {
	if l.Replay != nil {
		for _, speed := range l.Replay.Speeds {
			list = append(list, record.Condition{Arrivals: record.Replayed, Speed: speed})
		}
	}
	for _, arrivals := range l.Arrivals {
		for i, f := range l.Fractions {
			c := record.Condition{Arrivals: arrivals, Fraction: f}
			if len(l.PublishedRates) > 0 {
				c.Published = l.PublishedRates[i]
			}
			list = append(list, c)
		}
		for _, rate := range l.Rates {
			list = append(list, record.Condition{Arrivals: arrivals, Rate: rate})
		}
	}
	requests := l.Requests
	if len(requests) == 0 || quick {
		requests = []int{0}
	}
	for _, users := range l.Users {
		for _, n := range requests {
			list = append(list, record.Condition{Users: users, Requests: n})
		}
	}
	return list
}

// quickBudget is how long a quick run may be expected to take; a slow machine
// gets fewer blocks rather than a longer wait.
const quickBudget = 150 * time.Second

// settleAtMost bounds the wait for a quiet machine before a cell.
func settleAtMost(p record.Plan) time.Duration {
	if p.Quick {
		return 150 * time.Millisecond
	}
	return time.Second
}

// block is the order in which the cells of block b, counted from 0, are
// measured: each once, shuffled. The machine's speed drifts within minutes; so
// it meets all cells alike, and cells of one block are neighbours in time.
// Equal seeds give equal orders.
func block(list []record.Cell, b int, seed uint64) []record.Cell {
	rng := rand.New(rand.NewPCG(seed, uint64(b)))
	order := append([]record.Cell(nil), list...)
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// closedRate is what the length of a closed loop is guessed with, in requests
// per second; nobody knows it before.
const closedRate = 1000

// Expected is about how long a cell's load takes.
func Expected(p record.Plan, c record.Cell) time.Duration {
	window, connections := p.Duration, cmp.Or(c.Connections, p.Connections)
	switch {
	case c.Speed > 0:
		whole := time.Duration(float64(p.Replay.Length) / c.Speed)
		return p.Warmup + min(whole, cmp.Or(p.Duration, whole))
	case c.Requests > 0:
		window = time.Duration(float64(c.Requests) / closedRate * float64(time.Second))
	case !c.Closed() && connections > 0 && c.Rate > 0:
		window = time.Duration(float64(connections) / c.Rate * float64(time.Second))
	}
	return p.Warmup + window
}
