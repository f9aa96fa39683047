// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"

	"imbang/internal/lab/record"
)

// What another form of the report asks of this one.

// Metrics lists all metrics in the order of print.
func Metrics() []Metric { return slices.Clone(metrics) }

// MetricOf finds a metric by its key.
func MetricOf(key string) Metric { return metric(key) }

// LossCauses names the causes of loss in the order of print.
func LossCauses() []string { return slices.Clone(causeNames) }

// Legend says what the marks mean, a line each.
func Legend() string { return legend }

// Stored is the run that the report was made of.
func (rep *Report) Stored() *record.Run { return rep.stored }

// Servers lists every server that answered anywhere in the run.
func (rep *Report) Servers() []string { return rep.servers() }

// Has reports whether any cell has a figure of the metric.
func (sec Section) Has(key string) bool { return sec.has(key) }

// Yardstick reports whether the cell stands beside the others for comparison
// by eye and competes with none.
func (c Cell) Yardstick() bool { return c.yardstick }

// NotRanked says why a cell is not ranked; nil if it is.
func (c Cell) NotRanked() []string { return c.causes() }

// Blocks has the figures of a metric by block, NaN where there is none.
func (c Cell) Blocks(key string) []float64 { return c.blocks[key] }

// OnTime is Blocks with NaN for late runs.
func (c Cell) OnTime(key string) []float64 { return c.onTime(key).Values }

// Undelayed is Blocks of a latency without generator delay, of any other
// metric Blocks.
func (c Cell) Undelayed(key string) []float64 { return c.undelayed(key).Values }

// Words name the kind of a cause.
func (k Kind) Words() string { return k.words() }

// Reasons are the causes of the study's verdict in words.
func (rep *Report) Reasons() (lines []string) {
	for i, c := range rep.Verdict.Causes {
		lines = append(lines, fmt.Sprintf("%s (%s%s)", rep.Verdict.places[i], c.Kind.words(), c.detail()))
	}
	return lines
}

// Outs are the causes that keep competitors of the level out of the ranking,
// in the order of the kinds.
func (row Row) Outs() []Cause {
	return slices.DeleteFunc(slices.Clone(row.Causes), func(c Cause) bool { return c.Kind.common() })
}
