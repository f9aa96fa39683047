// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// made is a stored run that was never measured: its text is a study's cluster
// and competitors, and each sample is what result says.
type made struct {
	cluster     string // beside client_namespaces and servers
	load        string
	competitors string
	blocks      int
	result      func(c record.Cell, block int) *load.Result
}

func (m made) run(t testing.TB) *record.Run {
	t.Helper()
	if m.cluster == "" {
		m.cluster = "client_namespaces: 2, client_addresses: 400"
	}
	text := fmt.Sprintf("name: made\ncluster: {%s, servers: [{kind: nginx, count: 3, page: 375 B}]}\nload: {%s, timeout: 5 s}\ncompetitors:\n%s\nrepeats: {least: %d}\n",
		m.cluster, m.load, m.competitors, m.blocks)
	s, err := study.Parse("made.yaml", []byte(text), engine.Described())
	if err != nil {
		t.Fatal(err)
	}
	plan := record.Plan{Repeats: m.blocks, Seed: 7, PerConnection: 1}
	for _, c := range s.Competitors {
		plan.Competitors = append(plan.Competitors, record.Competitor(c))
	}
	for _, tool := range s.Load.Tools {
		for _, rate := range s.Load.Rates {
			plan.Conditions = append(plan.Conditions, record.Condition{Family: "ipv4", Call: "page", Tool: tool, Arrivals: "constant", Rate: rate})
		}
		for _, users := range s.Load.Users {
			plan.Conditions = append(plan.Conditions, record.Condition{Family: "ipv4", Call: "page", Tool: tool, Users: users})
		}
	}
	plan.Cells = len(plan.Conditions) * len(plan.Competitors)
	run := &record.Run{Environment: record.Environment{Study: "made.yaml", StudyText: text, Plan: plan}}
	for block := 1; block <= m.blocks; block++ {
		for _, condition := range plan.Conditions {
			for _, c := range plan.Competitors {
				cell := record.Cell{Competitor: c, Condition: condition}
				run.Samples = append(run.Samples, record.Sample{Cell: cell, Block: block, Load: m.result(cell, block)})
			}
		}
	}
	return run
}

func (m made) report(t testing.TB) *Report {
	t.Helper()
	rep, err := New(m.run(t))
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// clean is a run without fault that carried a part of what was asked, with a
// mean response time [ms].
func clean(c record.Cell, mean, tail, carried float64) *load.Result {
	n := 2000
	return &load.Result{
		AskedRate: c.Rate, OfferedRate: c.Rate, IssuedRate: c.Rate, ReplyRate: c.Rate * carried, NetIOKBs: c.Rate * carried * 0.7,
		Scheduled: n, Issued: n, Replies: n, Status: load.Status{Success: n},
		PerServer: map[string]int{"s1": n / 2, "s2": n/2 - 10, "s3": 10},
		Response:  load.Latency{Count: int64(n), MeanMS: mean, P50MS: mean, P99MS: tail},
	}
}

// noisy draws clean runs of competitors that are slower than the first by
// shares of their own, with noise of the machine.
func noisy(seed uint64, noise float64, slower map[string]float64) func(record.Cell, int) *load.Result {
	rng := rand.New(rand.NewPCG(seed, 1))
	drift := map[int]float64{}
	return func(c record.Cell, block int) *load.Result {
		if _, ok := drift[block]; !ok {
			drift[block] = 0.2 * rng.NormFloat64()
		}
		own := noise * rng.NormFloat64()
		mean := math.Exp(drift[block]+own) * (1 + slower[c.Name])
		return clean(c, mean, 5*mean*math.Exp(2*noise*rng.NormFloat64()), 0.9*math.Exp(-own/2))
	}
}

// text is the report as printed.
func text(t testing.TB, rep *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := rep.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wants(t *testing.T, got string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(got, w) {
			t.Errorf("%s\nwants %q", got, w)
		}
	}
}
