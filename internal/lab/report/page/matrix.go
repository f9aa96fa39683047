// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"imbang/internal/lab/report"
	"imbang/internal/lab/stats"
)

// matrix is one metric of the whole study: a row for each condition, a column
// for each competitor.
type matrix struct {
	Title, Unit string
	Columns     []string
	Rows        []matrixRow
	Published   bool   // some cell has a published figure
	Level       string // the least that an interval of the matrix has
}

type matrixRow struct {
	Condition string
	Cells     []matrixCell
}

// matrixCell is a median with its interval. The mark says how it is ranked and
// Why says it in words.
type matrixCell struct {
	Text, Span, Published, Mark, Why, Class string
}

// The marks of a matrix.
const (
	markWinner = "★"
	markGroup  = "≈"
	markOut    = "×"
)

// mostMatrices is how many metrics have one.
const mostMatrices = 2

// matrices are those of the metrics that are judged at most conditions, in the
// order of print, so that the choice does not depend on the result.
func matrices(rep *report.Report) (list []matrix) {
	var columns []string
	asked := map[string]int{}
	for _, sec := range rep.Sections {
		for _, name := range sec.Columns {
			if !slices.Contains(columns, name) {
				columns = append(columns, name)
			}
		}
		for _, row := range sec.Rows {
			for key := range row.Comparisons {
				asked[key]++
			}
		}
	}
	var keys []report.Metric
	for _, m := range report.Metrics() {
		if asked[m.Key] > 0 {
			keys = append(keys, m)
		}
	}
	sortBy(keys, func(m report.Metric) float64 { return -float64(asked[m.Key]) })
	for _, m := range keys[:min(mostMatrices, len(keys))] {
		level := math.Inf(1)
		x := matrix{Title: m.Title, Unit: strings.TrimSpace(unit(m)), Columns: columns}
		for _, sec := range rep.Sections {
			for _, row := range sec.Rows {
				if !slices.ContainsFunc(row.Cells, func(c report.Cell) bool { return c.Values[m.Key].N > 0 }) {
					continue
				}
				for _, c := range row.Cells {
					if v := c.Values[m.Key]; v.N > 0 && v.Interval != nil {
						level = min(level, v.Interval.Level)
					}
				}
				line := matrixRow{Condition: tidy(row.Condition.String())}
				for _, name := range columns {
					cell := newMatrixCell(m, row, name)
					x.Published = x.Published || cell.Published != ""
					line.Cells = append(line.Cells, cell)
				}
				x.Rows = append(x.Rows, line)
			}
		}
		if !math.IsInf(level, 1) {
			x.Level = fmt.Sprintf("%g\u00a0%%", math.Floor(1000*level)/10) // down: "at least" has to be true
		}
		list = append(list, x)
	}
	return list
}

func newMatrixCell(m report.Metric, row report.Row, name string) matrixCell {
	i := slices.IndexFunc(row.Cells, func(c report.Cell) bool { return c.Name == name })
	if i < 0 || row.Cells[i].Values[m.Key].N == 0 {
		return matrixCell{Text: "–", Why: "not measured"}
	}
	c, v := row.Cells[i], row.Cells[i].Values[m.Key]
	cell := matrixCell{Text: grouped(v.Median, m.Decimals)}
	if v.Interval != nil {
		cell.Span = grouped(v.Interval.Low, m.Decimals) + " to " + grouped(v.Interval.High, m.Decimals)
	}
	if v.Published != nil {
		cell.Published = figure(*v.Published)
	}
	comparison, judged := row.Comparisons[m.Key]
	within := func(list []string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(strings.Split(s, "="), name) })
	}
	switch {
	case c.Yardstick():
		cell.Class, cell.Why = "aside", "stands beside the others for comparison and does not compete"
	case !c.RankedBy(m.Key):
		cell.Mark, cell.Class, cell.Why = markOut, "out", "not ranked"
		if why := c.NotRanked(); len(why) > 0 {
			cell.Why += ": " + tidy(strings.Join(why, "; "))
		}
	case !judged || len(comparison.Groups) == 0:
	case isBest(row, m.Key, name):
		cell.Mark, cell.Class, cell.Why = markWinner, "won", "winner: significantly different from every competitor"
	case comparison.Outcome != stats.Winner && within(comparison.Groups[0]):
		cell.Mark, cell.Class, cell.Why = markGroup, "group", "first group: no significant difference among those that carry this mark"
	}
	return cell
}

// matrixKeys explain the marks.
func matrixKeys() []markMeaning {
	return []markMeaning{
		{markWinner, "winner: significantly different from every competitor"},
		{markGroup, "first group: no significant difference among those that carry this mark at one condition"},
		{markOut, "not ranked: the reason is in the tooltip of the cell, and below at its condition"},
	}
}
