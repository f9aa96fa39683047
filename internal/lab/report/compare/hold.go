// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"imbang/internal/lab/report"
	"imbang/internal/lab/stats"
)

// variants are the series in which a claim must hold: with every run, without
// late runs, and without generator delay.
var variants = []func(c report.Cell, key string) []float64{
	report.Cell.Blocks, report.Cell.OnTime, report.Cell.Undelayed,
}

// shifts compares one metric of pairs of cells in each variant.
func shifts(key string, pairs []pair, q stats.Question) (out []stats.Shift) {
	for _, values := range variants {
		var a, b []stats.Series
		for _, p := range pairs {
			a = append(a, stats.Series{Name: p.cell.String(), Values: values(p.a, key)})
			b = append(b, stats.Series{Name: p.cell.String(), Values: values(p.b, key)})
		}
		for i, s := range stats.Shifts(a, b, q) {
			if len(out) < len(pairs) {
				out = append(out, s)
				continue
			}
			out[i] = both(out[i], s)
		}
	}
	return out
}

// both is what may be claimed by x, of all runs, if y is another variant: its
// figures stay, its interval covers both, and its finding is that of both.
func both(x, y stats.Shift) stats.Shift {
	x.P, x.PStudent, x.PRelabelling = max(x.P, y.P), max(x.PStudent, y.PStudent), max(x.PRelabelling, y.PRelabelling)
	if y.Finding == stats.Unclear && min(y.BlocksA, y.BlocksB) < stats.NeededOfRuns { // its interval is not known
		x.Joint.Low, x.Joint.High = min(x.Joint.Low, 0), max(x.Joint.High, 0)
		x.Finding = stats.Unclear
		return x
	}
	x.Joint.Low, x.Joint.High = min(x.Joint.Low, y.Joint.Low), max(x.Joint.High, y.Joint.High)
	differs := func(f stats.Finding) bool { return f == stats.Different || f == stats.Slight }
	switch {
	case x.Finding == y.Finding && (!differs(x.Finding) || (x.Difference > 0) == (y.Difference > 0)):
	case differs(x.Finding) && differs(y.Finding) && (x.Difference > 0) == (y.Difference > 0):
		x.Finding = stats.Slight
	default:
		x.Finding = stats.Unclear
	}
	return x
}
