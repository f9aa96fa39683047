// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"math"

	"imbang/internal/lab/report"
	"imbang/internal/lab/stats"
)

// dots shows rates and times at each level, medians with their intervals and
// every run, beside what was published.
func (m *maker) dots(i int, sec report.Section) group {
	g := group{ID: "figures", Title: "What was measured", Say: "Median of the runs with its confidence interval; small points are single runs. " +
		"Each panel has a scale of its own; where figures differ much it is logarithmic.",
		Keys: []key{{"k-dot", "ranked"}, {"k-hollow", "not ranked"}}}
	published := false
	for _, spec := range []struct {
		title string
		keys  []string
	}{
		{"Response time, mean", []string{"response_time"}},
		{"Response time, median and 99th percentile", []string{"response_time_p50", "response_time_p99"}},
		{"Throughput", []string{"throughput"}},
		{"Replies per second", []string{"reply_rate"}},
	} {
		if spec.keys[0] == "reply_rate" && !sec.Rows[0].Closed() {
			continue // an open loop's throughput says the same
		}
		box := figureBox{Title: spec.title, Note: report.MetricOf(spec.keys[0]).Meaning, Class: levelsClass(len(sec.Rows))}
		for _, row := range sec.Rows {
			p := m.newPanel(spec.title, sec, row, spec.keys[0])
			for n, k := range spec.keys {
				metric := report.MetricOf(k)
				title := metric.Unit
				if len(spec.keys) > 1 {
					title = []string{"median", "99th percentile"}[n] + " [" + metric.Unit + "]"
				}
				p.columns = append(p.columns, column{title: title, class: "measured", share: 1 / float64(len(spec.keys)), tail: tailOf(row, metric), marks: measured(i, sec, row, metric)})
			}
			if pub := publishedColumn(i, sec, row, report.MetricOf(spec.keys[0])); pub != nil {
				p.columns[0].title = "here [" + report.MetricOf(spec.keys[0]).Unit + "]"
				p.columns[0].share, published = 0.6, true
				p.columns = append(p.columns, *pub)
			}
			if hasMarks(p) {
				box.Panels = append(box.Panels, panelBox{Title: at(sec, row), Plots: plots(p.svg())})
			}
		}
		if len(box.Panels) > 0 {
			g.Figures = append(g.Figures, box)
		}
	}
	if published {
		g.Keys = append(g.Keys, key{"k-published", "published, on an axis of its own"})
	}
	return g
}

// levelsClass lays out as many panels.
func levelsClass(n int) string { return fmt.Sprintf("levels%d", min(n, 4)) }

// newPanel has a row for each competitor that was planned.
func (m *maker) newPanel(title string, sec report.Section, row report.Row, key string) panel {
	p := panel{title: fmt.Sprintf("%s at %s, by competitor", title, at(sec, row))}
	for _, c := range row.Cells {
		p.rows = append(p.rows, panelRow{name: c.Name, strong: isBest(row, key, c.Name), aside: c.Yardstick()})
	}
	return p
}

func hasMarks(p panel) bool {
	for _, c := range p.columns {
		for _, row := range c.marks {
			if len(row) > 0 {
				return true
			}
		}
	}
	return false
}

// measured is a mark for each competitor that has a figure.
func measured(i int, sec report.Section, row report.Row, metric report.Metric) [][]mark {
	out := make([][]mark, len(row.Cells))
	for j, c := range row.Cells {
		v := c.Values[metric.Key]
		if v.N == 0 {
			continue
		}
		k := mark{
			value: v.Median, hollow: !c.RankedBy(metric.Key), label: brief(v.Median, metric.Decimals) + c.Marks.String(),
			hint: fmt.Sprintf("%s at %s: %s, %s", c.Name, at(sec, row), stated(metric, v), runs(v.N)),
			at:   where{i, metric.Key, c.Name, exact(row.Level())},
		}
		if c.Yardstick() {
			k.shape = "square"
		}
		if v.Interval != nil {
			k.low, k.high, k.sure = v.Interval.Low, v.Interval.High, true
		}
		if v.N > 1 {
			k.runs = stats.Present(c.Blocks(metric.Key))
		}
		out[j] = []mark{k}
	}
	return out
}

func runs(n int) string {
	if n == 1 {
		return "one run"
	}
	return fmt.Sprintf("%d runs", n)
}

// tailOf is the room that the figures of a metric take.
func tailOf(row report.Row, metric report.Metric) float64 {
	room := 0.0
	for _, c := range row.Cells {
		if v := c.Values[metric.Key]; v.N > 0 {
			room = max(room, wide(brief(v.Median, metric.Decimals)+c.Marks.String()))
		}
	}
	return room + 6
}

// publishedColumn is nil if nothing was published of the metric at this level.
func publishedColumn(i int, sec report.Section, row report.Row, metric report.Metric) *column {
	c := column{title: "published [" + metric.Unit + "]", class: "published", share: 0.4, marks: make([][]mark, len(row.Cells))}
	found := false
	for j, cell := range row.Cells {
		p := cell.Values[metric.Key].Published
		if p == nil || math.IsNaN(*p) {
			continue
		}
		label := figure(*p)
		found, c.tail = true, max(c.tail, wide(label)+4)
		c.marks[j] = []mark{{
			value: *p, shape: "diamond", label: label, hint: fmt.Sprintf("%s at %s, published: %s %s", cell.Name, at(sec, row), label, metric.Unit),
			at: where{i, "published_" + metric.Key, cell.Name, exact(row.Level())},
		}}
	}
	if !found {
		return nil
	}
	return &c
}

// cpu shows what a connection cost, and the whole machine. Where plain forwarding
// was not measured, the director's own account stands for the cost of balancing.
func (m *maker) cpu(i int, sec report.Section) group {
	g := group{ID: "cpu", Title: "CPU", Say: "Time per connection for balancing and in the real servers, and how busy the whole machine was, load generator included."}
	director, title := "cpu_balancing", "balancing [µs]"
	if !sec.Has(director) {
		director, title = "cpu_director", "director [µs]"
	}
	box := figureBox{Class: levelsClass(len(sec.Rows))}
	for _, row := range sec.Rows {
		p := m.newPanel("CPU time", sec, row, director)
		for _, x := range []struct{ key, title string }{
			{director, title}, {"cpu_servers", "servers [µs]"}, {"cpu_machine", "machine [%]"},
		} {
			metric := report.MetricOf(x.key)
			marks := measured(i, sec, row, metric)
			for _, list := range marks {
				for k := range list {
					list[k].runs = nil // too many for so little room
				}
			}
			p.columns = append(p.columns, column{title: x.title, class: "measured", share: 1.0 / 3, tail: tailOf(unmarked(row), metric), zero: true, marks: plainLabels(marks, row, metric)})
		}
		if hasMarks(p) {
			box.Panels = append(box.Panels, panelBox{Title: at(sec, row), Plots: plots(p.svg())})
		}
	}
	if len(box.Panels) > 0 {
		g.Figures = []figureBox{box}
	}
	return g
}

// unmarked is the row without the marks behind figures.
func unmarked(row report.Row) report.Row {
	cells := append([]report.Cell(nil), row.Cells...)
	for i := range cells {
		cells[i].Marks = report.Marks{}
	}
	row.Cells = cells
	return row
}

func plainLabels(marks [][]mark, row report.Row, metric report.Metric) [][]mark {
	for i := range marks {
		for j := range marks[i] {
			marks[i][j].label = brief(row.Cells[i].Values[metric.Key].Median, metric.Decimals)
		}
	}
	return marks
}
