// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

func TestNoiseIsSeparatedFromStalls(t *testing.T) {
	logs := []float64{1, 1.03, 0.97, 1.02, 0.98, 1, 1.01, 4}
	noise, stalls := noiseOf(logs)
	if math.Abs(noise-0.02) > 0.005 || stalls != 1./8 {
		t.Errorf("noise %.3f, stalls %.3f", noise, stalls)
	}
	if noise, stalls := noiseOf([]float64{1, 1, 1, 1}); noise != 0 || stalls != 0 {
		t.Errorf("of equal runs: noise %g, stalls %g", noise, stalls)
	}
}

// Schedulers that equal weights make one count once; without a pilot nothing is
// stated.
func TestPowerOfAPlan(t *testing.T) {
	s, err := study.Parse("fixed.yaml", []byte(fixedStudy), nil)
	if err != nil {
		t.Fatal(err)
	}
	condition := record.Condition{Family: "ipv4", Call: "page", Tool: "built-in", Arrivals: "constant", Rate: 2000}
	plan := record.Plan{Repeats: 7, Conditions: []record.Condition{condition}}
	for _, name := range []string{"rr", "wrr", "lc"} {
		plan.Competitors = append(plan.Competitors, record.Competitor{Name: name, Engine: "imbang", Scheduler: name, Weights: "equal", Servers: 4})
	}
	if list := PowerOf(plan, s); list != nil {
		t.Errorf("without a pilot: %v", list)
	}
	plan.Pilot = &record.Pilot{Competitor: "rr"}
	for i := range 6 {
		f := 1 + 0.03*float64(i%3-1)
		plan.Pilot.Runs = append(plan.Pilot.Runs, record.PilotRun{Condition: condition, Repeat: i + 1, MeanMS: f, P99MS: 2 * f, ReplyRate: 100 * f})
	}
	list := PowerOf(plan, s)
	if len(list) != 3 {
		t.Fatalf("%d statements: %v", len(list), list)
	}
	p := list[slices.IndexFunc(list, func(p Power) bool { return p.Metric == "response_time" })]
	if p.Competitors != 2 || p.Blocks != 7 || p.Detects == nil || *p.Detects < 0.03 || *p.Detects > 0.12 {
		t.Errorf("%+v", p)
	}
	if got := p.String(); !strings.HasPrefix(got, "Response time, mean at 2000/s: 2 competitors in 7 blocks find a difference of ") {
		t.Error(got)
	}
	plan.Repeats = 4
	if p := PowerOf(plan, s)[0]; p.Detects != nil || !strings.Contains(p.String(), "find no difference") {
		t.Errorf("in four blocks: %s", p)
	}
	plan.Pilot.Blocks, plan.Repeats = 7, 20 // as many were added while the intervals were wide
	if again := PowerOf(plan, s)[1]; again.Blocks != 7 || again.Detects == nil || *again.Detects != *p.Detects {
		t.Errorf("with blocks added: %s, before the run it was: %s", again, p)
	}
}
