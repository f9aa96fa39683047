// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"strings"

	"imbang/internal/lab/report"
)

// table is one level: a row a competitor, a column a metric.
type table struct {
	Title string
	Heads []head
	Rows  []tableRow
}

type head struct {
	Title, Unit string
	Published   bool
}

type tableRow struct {
	Name, Marks string
	Aside       bool
	Cells       []tableCell
}

type tableCell struct {
	Text, Span string
	Published  bool
	Best       bool
}

// shortTitles are those of columns.
var shortTitles = map[string]string{
	"response_time": "Response, mean", "response_time_p50": "Response, median", "response_time_p99": "Response, 99\u00a0%",
	"achieved_rate": "Achieved rate", "cpu_balancing": "CPU, balancing",
	"cpu_director": "CPU, director's account", "cpu_servers": "CPU, servers", "cpu_machine": "CPU, machine",
}

func newTable(sec report.Section, row report.Row) table {
	t := table{Title: at(sec, row)}
	published := map[string]bool{}
	var shown []report.Metric
	for _, m := range report.Metrics() {
		if !sec.Has(m.Key) {
			continue
		}
		shown = append(shown, m)
		for _, c := range row.Cells {
			published[m.Key] = published[m.Key] || c.Values[m.Key].Published != nil
		}
		title := m.Title
		if s := shortTitles[m.Key]; s != "" {
			title = s
		}
		unit := strings.NewReplacer("us/connection", "µs/conn.", "connections/s", "conn/s", "% busy", "% busy").Replace(m.Unit)
		if published[m.Key] {
			t.Heads = append(t.Heads, head{title + ", published", unit, true})
		}
		t.Heads = append(t.Heads, head{title, unit, false})
	}
	for _, c := range row.Cells {
		r := tableRow{Name: c.Name, Marks: c.Marks.String(), Aside: c.Yardstick()}
		for _, m := range shown {
			v := c.Values[m.Key]
			if published[m.Key] {
				cell := tableCell{Published: true}
				if v.Published != nil {
					cell.Text = figure(*v.Published)
				}
				r.Cells = append(r.Cells, cell)
			}
			r.Cells = append(r.Cells, measuredCell(row, m, c, v))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func measuredCell(row report.Row, m report.Metric, c report.Cell, v report.Value) tableCell {
	if v.N == 0 {
		return tableCell{Text: "–"}
	}
	cell := tableCell{Text: grouped(v.Median, m.Decimals), Best: isBest(row, m.Key, c.Name)}
	if v.Interval != nil {
		cell.Span = grouped(v.Interval.Low, m.Decimals) + "–" + grouped(v.Interval.High, m.Decimals)
	}
	return cell
}

// markMeaning explains a mark behind a name.
type markMeaning struct{ Mark, Text string }

// marksOf are the marks that the run's cells carry.
func marksOf(rep *report.Report) (list []markMeaning) {
	carried := ""
	for _, sec := range rep.Sections {
		for _, row := range sec.Rows {
			for _, c := range row.Cells {
				carried += c.Marks.String()
			}
		}
	}
	for line := range strings.Lines(report.Legend()) {
		mark, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if mark != "" && strings.Contains(carried, mark) {
			list = append(list, markMeaning{mark, text})
		}
	}
	return list
}

// pairTable lists all comparisons of one metric at one level.
type pairTable struct {
	Title string
	Level string // of the joint intervals
	Rows  []pairRow
}

type pairRow struct {
	A, B, Difference, Joint, Own, P, Finding, Class string
	Blocks                                          int
}

func pairTables(sec report.Section, row report.Row) (out []pairTable) {
	for _, m := range report.Metrics() {
		v, ok := row.Comparisons[m.Key]
		if !ok || len(v.Pairs) == 0 {
			continue
		}
		t := pairTable{Title: m.Title + " at " + at(sec, row), Level: fmt.Sprintf("%g\u00a0%%", 100*v.Pairs[0].Joint.Level)}
		for _, p := range v.Pairs {
			t.Rows = append(t.Rows, pairRow{
				A: p.A, B: p.B, Difference: percent(p.Difference), Joint: span(p.Joint), Own: fmt.Sprintf("%s (%.0f\u00a0%%)", span(p.Own), 100*p.Own.Level),
				P: fmt.Sprintf("%.3g", p.P), Finding: string(p.Finding), Class: findingClass(p.Finding), Blocks: p.Blocks,
			})
		}
		out = append(out, t)
	}
	return out
}

// noiseLine is the difference of two that are the same by definition.
type noiseLine struct{ Level, A, B, Difference, Interval string }

func noiseLines(sec report.Section, row report.Row) (out []noiseLine) {
	for _, n := range row.Noise {
		out = append(out, noiseLine{at(sec, row), n.A, n.B, percent(n.Difference), fmt.Sprintf("%s (%.0f\u00a0%%)", span(n.Interval), 100*n.Interval.Level)})
	}
	return out
}

// toolFigure is a figure that a tool reports, with three digits.
func toolFigure(v report.Value) string {
	if v.N == 0 {
		return "–"
	}
	return figure(v.Median)
}
