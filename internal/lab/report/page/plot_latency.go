// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
)

// percentiles are where the distributions are drawn.
var percentiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 98.5, 99, 99.2, 99.5, 99.7, 99.8, 99.9, 99.95, 99.98, 99.99}

// beyond is how many requests have to lie above a percentile for it to be
// drawn: less is the luck of single requests.
const beyond = 5

// latency shows the whole distribution of response times, all runs of a cell
// together, with the tail stretched: 90, 99 and 99.9 % are at equal distances.
func (m *maker) latency(i int, sec report.Section) (group, error) {
	g := group{ID: "latency", Title: "Distribution of response times", Say: "The share of requests that were answered within a time: all runs of a cell together. " +
		"To the right each step is a tenth of the requests that are left."}
	box := figureBox{Class: levelsClass(len(sec.Rows))}
	for r, row := range sec.Rows {
		l := lines{id: fmt.Sprintf("b%d-latency%d", i+1, r+1), title: "Percentiles of the response time at " + at(sec, row), unit: "ms", across: nines(99.99)}
		last := 0.0
		for _, c := range row.Cells {
			one, err := m.distribution(c, row)
			if err != nil {
				return g, err
			}
			if n := len(one.points); n > 0 {
				last = max(last, one.points[n-1].x)
			}
			l.list = append(l.list, one)
		}
		if l.empty() {
			continue
		}
		l.across = nines(last)
		for _, t := range []float64{0, 50, 90, 99, 99.9, 99.99} {
			if t <= last {
				l.ticks = append(l.ticks, labelled{t, trimmed(t, 2) + " %"})
			}
		}
		one, list := l.plots()
		if !one {
			box.Class = "flow"
		}
		title := at(sec, row)
		if !one {
			title += " [ms]"
		}
		box.Panels = append(box.Panels, panelBox{Title: title, Plots: list, Small: !one})
	}
	if len(box.Panels) > 0 {
		g.Figures = []figureBox{box}
	}
	return g, nil
}

// nines places percentiles by how many are left, up to the last one.
func nines(last float64) func(float64) float64 {
	of := func(p float64) float64 { return -math.Log10(1 - min(p, 99.999)/100) }
	end := max(of(last), 0.1)
	return func(p float64) float64 { return of(p) / end }
}

// distribution merges the histograms of a cell's runs.
func (m *maker) distribution(c report.Cell, row report.Row) (line, error) {
	one := line{name: c.Name, aside: c.Yardstick()}
	var all *hdrhistogram.Histogram
	for _, s := range m.samples[record.Cell{Competitor: c.Competitor, Condition: row.Condition}] {
		if s.Load.Response.HDR == "" || s.Load.Replies == 0 {
			continue
		}
		h, err := s.Load.Response.Histogram()
		if err != nil {
			return one, fmt.Errorf("%s, block %d: %w", s.Cell, s.Block, err)
		}
		if all == nil {
			all = h
		} else {
			all.Merge(h)
		}
	}
	if all == nil {
		return one, nil
	}
	for _, p := range percentiles {
		if float64(all.TotalCount())*(1-p/100) < beyond {
			break
		}
		one.points = append(one.points, sample{x: p, y: float64(all.ValueAtQuantile(p)) / 1e6})
	}
	return one, nil
}
