// SPDX-License-Identifier: Apache-2.0

package report

import (
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// coarse is the difference that a study is to tell at least, where it names
// no width of intervals itself: what is called marked.
const coarse = 0.10

// control judges the machine by a competitor that stands in the study twice,
// or two that are the same by definition: what they differ by is noise.
func (row *Row) control(ranked []Cell, competitors int, s *study.Study, plan record.Plan) {
	target := stats.Target{HalfWidth: coarse, Least: 1, Most: max(plan.Repeats, plan.Most), Alpha: claimAlpha}
	if plan.Until > 0 {
		target.HalfWidth = plan.Until
	}
	for i, b := range ranked {
		for _, a := range ranked[:i] {
			if !same(a.Competitor, b.Competitor, s) {
				continue
			}
			c := target.Check(a.series("response_time"), b.series("response_time"), max(2, competitors))
			if row.Control == nil || c.Noise > row.Control.Noise {
				row.Control, row.controls = &c, []string{a.Name, b.Name}
			}
		}
	}
}

// tooNoisy adds the machine to the causes, if something could not be told and
// by its own control the machine is why.
func (row *Row) tooNoisy() {
	c := row.Control
	if c == nil || c.Needed == 0 || c.Reachable || row.Outcome == OutcomeWinner || row.Outcome == OutcomeEqual {
		return
	}
	row.because(MachineNoisy, row.controls, "%s", c.Reason)
}

// suspects says so when what is the same came out apart.
func (row *Row) suspects(s *study.Study) {
	byName := map[string]record.Competitor{}
	for _, c := range row.Cells {
		byName[c.Name] = c.Competitor
	}
	for _, m := range metrics {
		for _, p := range row.Comparisons[m.Key].Pairs {
			a, known := byName[p.A]
			b, both := byName[p.B]
			if known && both && p.Finding == stats.Apart && same(a, b, s) {
				row.because(ControlDiffers, []string{p.A, p.B}, "they are the same, yet came out apart in %s by %s (%s): believe no difference of that size",
					m.Name, stats.Percent(p.Difference), p.Joint)
			}
		}
	}
}
