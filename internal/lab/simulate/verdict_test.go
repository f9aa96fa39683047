// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math"
	"testing"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/distribution"
	"imbang/internal/lab/engine"
	generator "imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/study"
	"imbang/internal/testenv"
)

// stored makes a run of outcomes, as if a study had measured them: of says which
// competitor and block an outcome is.
func stored(t *testing.T, names []string, rates []float64, blocks int, outcomes []Outcome, of func(o Outcome) (competitor, block int)) *report.Report {
	t.Helper()
	text := fmt.Sprintf("name: virtual\ncluster: {client_namespaces: 2, client_addresses: 400, weights: {w: [4, 4, 4, 1]}, servers: [{kind: nginx, count: 4, page: 375 B}]}\n"+
		"load: {rates: [%g], duration: 2 s, timeout: 5 s}\ncompetitors: [{engine: imbang, schedulers: [rr]}]\nrepeats: {least: %d}\n", rates[0], blocks)
	s, err := study.Parse("virtual.yaml", []byte(text), engine.Described())
	if err != nil {
		t.Fatal(err)
	}
	plan := record.Plan{Repeats: blocks, PerConnection: 1, Cells: len(names) * len(rates)}
	for _, name := range names {
		plan.Competitors = append(plan.Competitors, record.Competitor{Name: name, Engine: "imbang", Scheduler: name, Weights: "w", Servers: 4})
	}
	for _, rate := range rates {
		plan.Conditions = append(plan.Conditions, record.Condition{Family: "ipv4", Call: "page", Tool: study.BuiltIn, Arrivals: "poisson", Rate: rate})
	}
	run := &record.Run{Environment: record.Environment{Study: s.Name, StudyText: text, Plan: plan}}
	for _, o := range outcomes {
		competitor, block := of(o)
		n, cell := o.Connections, record.Cell{Competitor: plan.Competitors[competitor], Condition: plan.Conditions[0]}
		for _, c := range plan.Conditions {
			if c.Rate == o.Rate {
				cell.Condition = c
			}
		}
		run.Samples = append(run.Samples, record.Sample{Cell: cell, Block: block, Load: &generator.Result{
			AskedRate: o.Rate, OfferedRate: o.Rate, IssuedRate: o.Rate, ReplyRate: o.Rate, NetIOKBs: o.Rate,
			Scheduled: n, Issued: n, Replies: n, Status: generator.Status{Success: n}, PerServer: map[string]int{"s1": n / 2, "s2": n - n/2},
			Response: generator.Latency{Count: int64(n), MeanMS: o.Response.MeanMS, P50MS: o.Response.P50MS, P99MS: o.Response.P99MS},
			Service:  generator.Latency{Count: int64(n), MeanMS: o.Response.MeanMS, P50MS: o.Response.P50MS, P99MS: o.Response.P99MS},
		}})
	}
	rep, err := report.New(run)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// farm is four servers of which the last has a speed.
func farm(speed float64, blocks int, seed uint64, schedulers ...string) Config {
	c := Config{
		Concurrency: 1, Backlog: -1, Distribution: distribution.Exponential, Service: 10 * time.Millisecond,
		Arrivals: arrivals.Pattern{Distribution: arrivals.Poisson}, Clients: 1 << 12, Destinations: 1,
		Schedulers: schedulers, Connections: 1500, Warmup: 0.1, Repeats: blocks, Seed: seed, Jobs: 2, Short: true,
	}
	c.Servers = []Server{{1, 4}, {1, 4}, {1, 4}, {speed, max(1, int32(4*speed))}}
	return c
}

// farmStage has data planes for runs of a farm. They are loaded once, which takes longer than a run.
func farmStage(t *testing.T) *stage {
	t.Helper()
	c := farm(1, 1, 1)
	c.Rates = []float64{0.8 * c.Capacity()} // the highest of them
	s, err := newStage(&c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Four competitors that are rr in truth, under the names of others, come out
// without a winner at two rates, whatever the seed.
func TestFourEqualsHaveNoWinner(t *testing.T) {
	testenv.Root(t)
	const seeds, competitors, blocks = 20, 4, 8
	names := []string{"rr", "lc", "sed", "nq"}
	stage := farmStage(t)
	winners, claims := 0, 0
	for seed := range uint64(seeds) {
		c := farm(1, competitors*blocks, seed+1, "rr")
		c.Rates = []float64{0.5 * c.Capacity(), 0.8 * c.Capacity()}
		outcomes, err := stage.play(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		rep := stored(t, names, c.Rates, blocks, outcomes, func(o Outcome) (int, int) { return o.Repeat % competitors, o.Repeat/competitors + 1 })
		switch rep.Verdict.Outcome {
		case report.OutcomeWinner:
			winners++
			t.Errorf("seed %d: %s", seed+1, rep.Verdict.Sentence)
		case report.OutcomeGroups:
			claims++
			t.Logf("seed %d: %s", seed+1, rep.Verdict.Sentence)
		case report.OutcomeNoDifference, report.OutcomeEqual:
		default:
			t.Errorf("seed %d: %s", seed+1, rep.Verdict.Sentence)
		}
	}
	t.Logf("%d of %d studies name a winner, %d claim another difference", winners, seeds, claims)
	if limit := 0.05 + 3*math.Sqrt(0.05*0.95/seeds); float64(winners+claims) > limit*seeds {
		t.Errorf("%d of %d studies claim a difference", winners+claims, seeds)
	}
}

// A server at a quarter of the speed is found in every run: weights by capacity
// are better than none.
func TestSlowServerIsFound(t *testing.T) {
	testenv.Root(t)
	const blocks = 8
	schedulers := []string{"rr", "wrr"}
	stage := farmStage(t)
	for seed := range uint64(20) {
		c := farm(0.25, blocks, seed+1, schedulers...)
		c.Rates = []float64{0.5 * c.Capacity()}
		outcomes, err := stage.play(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		rep := stored(t, schedulers, c.Rates, blocks, outcomes, func(o Outcome) (int, int) {
			if o.Scheduler == "wrr" {
				return 1, o.Repeat + 1
			}
			return 0, o.Repeat + 1
		})
		if w := rep.Verdict.Winners; len(w) == 0 || w[0].Names[0] != "wrr" {
			t.Errorf("seed %d: %s", seed+1, rep.Verdict.Sentence)
		}
	}
}
