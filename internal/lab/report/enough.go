// SPDX-License-Identifier: Apache-2.0

package report

import (
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// Enough reports whether the samples so far answer the study as well as its
// plan wants: every comparison that a report would make has intervals as
// narrow as that, or can become no narrower within the plan's blocks.
func Enough(plan record.Plan, s *study.Study, samples []record.Sample) bool {
	blocks := 0
	for _, smp := range samples {
		blocks = max(blocks, smp.Block)
	}
	plan.Repeats = blocks // none is missing yet
	target := stats.Target{HalfWidth: plan.Until, Least: 1, Most: plan.Most, Alpha: claimAlpha}
	rep := &Report{}
	rep.sections(plan, samples, s)
	for _, sec := range rep.Sections {
		for _, row := range sec.Rows {
			for _, series := range row.series {
				if ok, _ := target.Enough(series); !ok {
					return false
				}
			}
		}
	}
	return true
}
