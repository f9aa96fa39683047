// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
)

const rates = "rates: [1000, 2000, 4000], duration: 2 s"

// at makes one competitor slower at one rate only.
func at(rate float64, slower map[string]float64) func(record.Cell, int) *load.Result {
	calm, busy := noisy(4, 0.02, nil), noisy(2, 0.02, slower)
	return func(c record.Cell, block int) *load.Result {
		if c.Rate == rate {
			return busy(c, block)
		}
		return calm(c, block)
	}
}

func TestStudyVerdicts(t *testing.T) {
	three := "  - {engine: imbang, schedulers: [rr, lc, sed]}"
	for name, tc := range map[string]struct {
		made    made
		outcome Outcome
		says    []string
	}{
		"a winner everywhere": {made{load: rates, competitors: three, blocks: 8, result: noisy(1, 0.02, map[string]float64{"rr": 0.3, "sed": 0.3})},
			OutcomeWinner, []string{"lc is best at 1000/s, 2000/s and 4000/s (at 1000/s: lowest mean response time; ", ", the next, has +"}},
		"a winner at one rate": {made{load: rates, competitors: three, blocks: 8, result: at(4000, map[string]float64{"rr": 0.3, "sed": 0.3})},
			OutcomeWinner, []string{"lc is best at 4000/s (lowest mean response time", "; no winner at 1000/s and 2000/s."}},
		"no winner, but groups": {made{load: rates, competitors: three, blocks: 8, result: noisy(1, 0.02, map[string]float64{"sed": 0.3})},
			OutcomeGroups, []string{"No winner at any of 3 rates; groups without a significant difference: ", " | sed at 1000/s in mean response time; "}},
		"no difference": {made{load: rates, competitors: three, blocks: 8, result: noisy(1, 0.1, nil)},
			OutcomeNoDifference, []string{"No significant difference between any two schedulers at any of 3 rates; the joint intervals allow differences in mean response time from -", "request rate from -"}},
		"equal": {made{load: "rates: [1000], duration: 2 s", competitors: three, blocks: 8, result: func(c record.Cell, _ int) *load.Result { return clean(c, 1, 5, 1) }},
			OutcomeEqual, []string{"Equal: the joint intervals exclude a difference above 2 % at 1000/s."}},
		"too few runs": {made{load: rates, competitors: three, blocks: 2, result: noisy(1, 0.02, nil)},
			OutcomeTooFewRuns, []string{"No verdict at any of 3 rates: 2 runs of each are compared; claims about 3 competitors require at least 5, and 7 to find a difference of 10 % at a noise of 3 % with a probability of 80 %."}},
		"engines": {made{load: "rates: [1000], duration: 2 s", competitors: "  - {engine: imbang, schedulers: [rr]}\n  - {engine: haproxy-tcp, schedulers: [roundrobin]}", blocks: 8, result: noisy(1, 0.1, nil)},
			OutcomeNoDifference, []string{"No significant difference between any two competitors at 1000/s; "}},
		"one alone": {made{load: rates, competitors: "  - {engine: imbang, schedulers: [rr]}", blocks: 2, result: noisy(1, 0.02, nil)},
			OutcomeNothing, []string{"Nothing to compare: fewer than two competitors."}},
		"users": {made{load: "users: [10, 20], duration: 2 s", competitors: three, blocks: 8, result: noisy(1, 0.1, nil)},
			OutcomeNoDifference, []string{"at any of 2 conditions"}},
	} {
		t.Run(name, func(t *testing.T) {
			rep := tc.made.report(t)
			if rep.Verdict.Outcome != tc.outcome {
				t.Errorf("%s, want %s", rep.Verdict.Outcome, tc.outcome)
			}
			wants(t, rep.Verdict.Sentence, tc.says...)
			if lines := strings.Split(text(t, rep), "\n"); lines[1] != "Verdict: "+rep.Verdict.Sentence {
				t.Errorf("second line %q, want the verdict", lines[1])
			}
		})
	}
}

// A difference at one of many levels has to be surer than one at a level that
// is alone.
func TestOneOfManyMustBeSurer(t *testing.T) {
	two := "  - {engine: imbang, schedulers: [lc, sed]}" // in seven blocks p is 1/64 at best
	alone := made{load: "rates: [4000], duration: 2 s", competitors: two, blocks: 7, result: at(4000, map[string]float64{"sed": 0.5})}.report(t)
	if alone.Verdict.Outcome != OutcomeWinner {
		t.Errorf("alone: %+v", alone.Verdict)
	}
	many := made{load: "rates: [1000, 1500, 2000, 2500, 4000], duration: 2 s", competitors: two, blocks: 7, result: at(4000, map[string]float64{"sed": 0.5})}.report(t)
	row := many.Sections[0].Rows[4]
	if row.Outcome != OutcomeWinner || many.Verdict.Outcome != OutcomeNoDifference {
		t.Errorf("of many: level %s, study %s", row.Outcome, many.Verdict.Outcome)
	}
	wants(t, many.Verdict.Sentence, "; differences at ", "4000/s are not significant among 15 questions")
}

// A large difference in each question does not let a pair be claimed that is
// significant in its question alone.
func TestPairsAreSignificantAmongAllQuestions(t *testing.T) {
	weak := 0
	for seed := range uint64(12) {
		rep := made{load: rates, competitors: two, blocks: 8, result: noisy(seed, 0.02, map[string]float64{"lc": 0.03, "sed": 0.5})}.report(t)
		questions := 0
		for _, row := range rep.Sections[0].Rows {
			questions += len(row.answered)
		}
		for _, a := range rep.Verdict.different {
			together := map[[2]string]bool{}
			for _, g := range a.groups {
				for _, x := range g {
					for _, y := range g {
						together[[2]string{x, y}] = true
					}
				}
			}
			for _, p := range a.verdict.Pairs {
				if p.Finding != stats.Different {
					continue
				}
				sure := p.P <= (1-level)/float64(questions)
				if !sure {
					weak++
				}
				if together[[2]string{p.A, p.B}] == sure {
					t.Errorf("seed %d, %s at %s: %s and %s, p = %.4f among %d questions, groups %v", seed, a.metric.Key, a.at, p.A, p.B, p.P, questions, a.groups)
				}
			}
		}
	}
	if weak == 0 {
		t.Error("no pair was significant in its question alone: the test shows nothing")
	}
}

// The 99th percentile is judged for itself, if enough lie beyond it.
func TestTailIsJudged(t *testing.T) {
	draw := noisy(1, 0.02, nil)
	m := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 8, result: func(c record.Cell, block int) *load.Result {
		r := draw(c, block)
		if c.Name == "lc" {
			r.Response.P99MS /= 3
		}
		return r
	}}
	row := m.report(t).Sections[0].Rows[0]
	if !slices.Equal(row.Best[tail], []string{"lc"}) || row.Best["response_time"] != nil || row.Outcome != OutcomeWinner {
		t.Errorf("%s, %v", row.Outcome, row.Best)
	}
	few := m
	few.result = func(c record.Cell, block int) *load.Result {
		r := m.result(c, block)
		r.Response.Count = leastForTail - 1
		return r
	}
	if row := few.report(t).Sections[0].Rows[0]; row.Best != nil || len(row.Comparisons) != 2 {
		t.Errorf("of %d replies: %v, %d metrics compared", leastForTail-1, row.Best, len(row.Comparisons))
	}
}
