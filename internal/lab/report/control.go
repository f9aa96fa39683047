// SPDX-License-Identifier: Apache-2.0

package report

import (
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// control keeps what the noisiest pair of cells of the same competitor shows.
func (row *Row) control(ranked []Cell, s *study.Study) {
	for i, b := range ranked {
		for _, a := range ranked[:i] {
			if !same(a.Competitor, b.Competitor, s) {
				continue
			}
			c := stats.Check(a.series("response_time"), b.series("response_time"))
			if row.Control == nil || c.Noise > row.Control.Noise {
				row.Control = &c
			}
		}
	}
}

// suspects adds the control to the causes where it differs from itself.
func (row *Row) suspects(s *study.Study) {
	byName := map[string]record.Competitor{}
	for _, c := range row.Cells {
		byName[c.Name] = c.Competitor
	}
	for _, m := range metrics {
		for _, p := range row.Comparisons[m.Key].Pairs {
			a, known := byName[p.A]
			b, both := byName[p.B]
			if known && both && p.Finding == stats.Different && same(a, b, s) {
				row.because(ControlDiffers, []string{p.A, p.B}, "they are the same competitor, and their %s differs significantly, by %s (%s): distrust differences of that size",
					m.Name, stats.Percent(p.Difference), p.Joint)
			}
		}
	}
}
