// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"

	"imbang/internal/lab/report"
)

func plots(list ...template.HTML) []template.HTML { return list }

// course shows how figures go with the level.
func (m *maker) course(i int, sec report.Section) group {
	unit := map[string]string{"conn/s": "rate", "requests": "number of requests", "users": "number of users"}[sec.LevelUnit]
	g := group{ID: "course", Title: "Against the " + unit}
	if len(sec.Rows) < 2 {
		return g
	}
	g.Say = "Medians with their intervals."
	for _, key := range []string{"response_time", "response_time_p50", "response_time_p99", "throughput"} {
		metric := report.MetricOf(key)
		l := lines{
			id: fmt.Sprintf("b%d-%s", i+1, key), title: fmt.Sprintf("%s against the %s", metric.Title, unit), unit: metric.Unit,
			across: evenly(sec.Rows),
		}
		for _, row := range sec.Rows {
			l.ticks = append(l.ticks, labelled{row.Level(), grouped(row.Level(), decimalsOf(row.Level()))})
		}
		for j, name := range sec.Columns {
			l.list = append(l.list, m.alongLevels(i, sec, j, name, metric))
		}
		if l.empty() {
			continue
		}
		box := figureBox{Title: metric.Title, Class: "flow"}
		one, list := l.plots()
		if !one {
			box.Title = fmt.Sprintf("%s [%s]", metric.Title, metric.Unit)
			g.Say = "Medians with their intervals; grey are the others. Hollow points are not ranked."
		}
		box.Panels = []panelBox{{Plots: list, Small: !one}}
		g.Figures = append(g.Figures, box)
	}
	return g
}

func (l lines) empty() bool {
	for _, one := range l.list {
		if len(one.points) > 0 {
			return false
		}
	}
	return true
}

// evenly places levels on an axis by their size, from 0 on.
func evenly(rows []report.Row) func(float64) float64 {
	low, high := rows[0].Level(), rows[0].Level()
	for _, r := range rows {
		low, high = min(low, r.Level()), max(high, r.Level())
	}
	span := max(high-low, 1e-9)
	return func(v float64) float64 { return 0.04 + 0.92*(v-low)/span }
}

// alongLevels is the line of one competitor.
func (m *maker) alongLevels(i int, sec report.Section, j int, name string, metric report.Metric) line {
	one := line{name: name}
	for _, row := range sec.Rows {
		c := row.Cells[j]
		one.aside = c.Yardstick()
		v := c.Values[metric.Key]
		if v.N == 0 {
			continue
		}
		p := sample{
			x: row.Level(), y: v.Median, hollow: !c.RankedBy(metric.Key), marked: true,
			hint: fmt.Sprintf("%s at %s: %s, %s", name, at(sec, row), stated(metric, v), runs(v.N)),
			at:   where{i, metric.Key, name, exact(row.Level())},
		}
		if v.Interval != nil {
			p.low, p.high, p.sure = v.Interval.Low, v.Interval.High, true
		}
		one.points = append(one.points, p)
	}
	return one
}
