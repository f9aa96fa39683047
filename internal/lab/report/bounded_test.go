// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

// A schedule of random arrivals may come to less than the rate that was asked
// for. Who answers all of it is not short of anything.
func TestThroughputIsJudgedByWhatWasOffered(t *testing.T) {
	for offered, judged := range map[float64]bool{0.95: false, 1: true, 0: true} { // 0: the result does not tell
		m := made{load: "rates: [1000], duration: 2 s", competitors: two, blocks: 8, result: func(c record.Cell, _ int) *load.Result {
			r := clean(c, 1, 5, 0.95)
			r.OfferedRate, r.IssuedRate = offered*c.Rate, offered*c.Rate
			return r
		}}
		row := m.report(t).Sections[0].Rows[0]
		never := slices.ContainsFunc(row.Causes, func(c Cause) bool { return c.Kind == NeverShort })
		if _, asked := row.Comparisons["reply_rate"]; asked != judged || never == judged {
			t.Errorf("0.95 of the rate answered, %g offered: throughput judged %v, never short %v", offered, asked, never)
		}
	}
}
