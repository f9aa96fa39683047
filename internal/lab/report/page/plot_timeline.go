// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
)

// timeline shows the replies of each server over time, where the first run of
// a cell recorded them.
func (m *maker) timeline(i int, sec report.Section) group {
	g := group{ID: "timeline", Title: "Load over time", Keys: m.serverKeys(),
		Say: "Replies per second of each real server during the first run of each cell. All plots of a level share their scales."}
	for _, row := range sec.Rows {
		var names []string
		var runs []*load.Timeline
		for _, c := range row.Cells {
			for _, s := range m.samples[record.Cell{Competitor: c.Competitor, Condition: row.Condition}] {
				if t := s.Load.Timeline; t != nil && t.SlotSeconds > 0 && len(t.Replies) > 0 {
					names, runs = append(names, c.Name), append(runs, t)
					break
				}
			}
		}
		if len(runs) == 0 {
			continue
		}
		box := panelBox{Title: at(sec, row) + " [replies/s]", Small: true}
		seconds, high := ends(runs)
		for k, t := range runs {
			box.Plots = append(box.Plots, m.overTime(names[k], at(sec, row), t, seconds, high))
		}
		g.Figures = append(g.Figures, figureBox{Class: "flow", Panels: []panelBox{box}})
	}
	return g
}

// ends are those of the scales of all plots of a level.
func ends(runs []*load.Timeline) (seconds, high float64) {
	for _, t := range runs {
		for _, list := range t.Replies {
			seconds = max(seconds, float64(len(list))*t.SlotSeconds)
			for _, n := range list {
				high = max(high, float64(n)/t.SlotSeconds)
			}
		}
	}
	return seconds, high
}

func (m *maker) overTime(name, level string, t *load.Timeline, seconds, high float64) template.HTML {
	const width, height = 178.0, 128.0
	f := frame{38, width - 8, 24, height - 20}
	d := newDrawing(width, height, fmt.Sprintf("Replies per second of each server over time, %s at %s", name, level))
	d.text(0, 12, "name strong", name)
	l := lines{across: func(v float64) float64 { return v / seconds }}
	for _, v := range linearTicks(0, seconds, 3) {
		l.ticks = append(l.ticks, labelled{v, trimmed(v, 2) + " s"})
	}
	s := fromZero(high, f.bottom, f.top, 3)
	l.axes(d, f, s)
	for i, server := range m.servers {
		var path []point
		for slot, n := range t.Replies[server] {
			path = append(path, point{l.x(f, (float64(slot)+0.5)*t.SlotSeconds), s.at(float64(n) / t.SlotSeconds)})
		}
		if len(path) > 0 {
			d.tag("path", "d", course(path), "class", "over "+serverClass(i), "data-server", server)
		}
	}
	return d.html()
}
