// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// Equals come out as no difference, of the whole study and of each of its
// levels, but for one of twenty: from stored samples to the verdict.
func TestEqualsDoNotDiffer(t *testing.T) {
	const twice = "  - {engine: imbang, schedulers: [rr]}\n  - {name: rr again, engine: imbang, schedulers: [rr]}"
	for name, c := range map[string]struct {
		made    made
		noise   float64
		studies int
	}{
		"A/A, the same scheduler under two names": {made{load: "rates: [1000, 2000, 4000], duration: 2 s", competitors: twice, blocks: 7}, 0.05, 250},
		"A/A, more blocks":                        {made{load: "rates: [1000, 2000, 4000], duration: 2 s", competitors: twice, blocks: 12}, 0.05, 250},
		"A/A, a noisy machine":                    {made{load: "rates: [1000], duration: 2 s", competitors: twice, blocks: 8}, 0.5, 400},
		"two that happen to be equal":             {made{load: "rates: [1000, 2000, 4000], duration: 2 s", competitors: "  - {engine: imbang, schedulers: [rr, sed]}", blocks: 10}, 0.05, 250},
		"seven that happen to be equal":           {made{load: "rates: [1000, 2000], duration: 2 s", competitors: "  - {engine: imbang, schedulers: [rr, lc, sed, nq, twos, ovf, fo]}", blocks: 5}, 0.05, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var studies, levels, falseStudies, falseLevels int
			for seed := range c.studies {
				c.made.result = noisy(uint64(seed), c.noise, nil)
				rep := c.made.report(t)
				studies++
				if o := rep.Verdict.Outcome; o != OutcomeNoDifference && o != OutcomeEqual {
					falseStudies++
				}
				for _, row := range rep.Sections[0].Rows {
					levels++
					if row.Outcome != OutcomeNoDifference && row.Outcome != OutcomeEqual {
						falseLevels++
					}
				}
			}
			t.Logf("false verdicts on %d of %d studies, on %d of %d levels", falseStudies, studies, falseLevels, levels)
			for _, x := range []struct {
				what     string
				false, n int
			}{{"studies", falseStudies, studies}, {"levels", falseLevels, levels}} {
				const rate = 0.05
				if got, most := float64(x.false)/float64(x.n), rate+3*math.Sqrt(rate*(1-rate)/float64(x.n)); got > most {
					t.Errorf("%s: %.3f false, want at most %.2f (%.3f by chance)", x.what, got, rate, most)
				}
			}
		})
	}
}

// The same for two to ten competitors, a study of two levels and three metrics.
func TestEqualsOfAnyNumberDoNotDiffer(t *testing.T) {
	schedulers := []string{"rr", "lc", "sed", "nq", "twos", "ovf", "fo", "lblc", "lblcr", "mh"}
	const studies, rate = 500, 0.05
	for k := 2; k <= len(schedulers); k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			wrong := 0
			for seed := range studies {
				rep := made{load: "rates: [1000, 2000], duration: 2 s", competitors: "  - {engine: imbang, schedulers: [" + strings.Join(schedulers[:k], ", ") + "]}",
					blocks: 8, result: noisy(uint64(seed), 0.05, nil)}.report(t)
				if o := rep.Verdict.Outcome; o != OutcomeNoDifference && o != OutcomeEqual {
					wrong++
				}
			}
			got, most := float64(wrong)/studies, rate+3*math.Sqrt(rate*(1-rate)/studies)
			t.Logf("%d of %d studies claim a difference", wrong, studies)
			if got > most {
				t.Errorf("%.3f of the studies claim a difference, want at most %.2f (%.3f by chance)", got, rate, most)
			}
		})
	}
}

// The same path finds what there is: not everything is without a difference.
func TestWhatDiffersIsFound(t *testing.T) {
	found := 0
	const studies = 20
	for seed := range studies {
		m := made{load: "rates: [1000, 2000, 4000], duration: 2 s", competitors: "  - {engine: imbang, schedulers: [rr, sed]}", blocks: 10,
			result: noisy(uint64(seed), 0.03, map[string]float64{"rr": 0.2})}
		rep := m.report(t)
		if rep.Verdict.Outcome == OutcomeWinner && rep.Verdict.Winners[0].Names[0] == "sed" {
			found++
		}
	}
	if found < 18 {
		t.Errorf("sed, a fifth faster, won %d of %d studies, want 18", found, studies)
	}
}
