// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"imbang/internal/lab/report"
	"imbang/internal/lab/stats"
)

// mostPairs is up to how many pairs are all drawn; of more, only those with
// the one that ranks first. The table has them all.
const mostPairs = 15

// forest shows differences with the intervals that hold for all of them at
// once, the line of no difference and the margin within which two are equal.
func (m *maker) forest(i int, sec report.Section) group {
	g := group{ID: "differences", Title: "Differences", Say: "By what share the second of a pair is greater than the first, in the same blocks, with the interval " +
		"that holds for all pairs of the panel at once. The band is the margin within which two count as equal."}
	kinds := map[stats.Finding]bool{}
	for _, metric := range report.Metrics() {
		box := figureBox{Title: metric.Title, Class: levelsClass(len(sec.Rows))}
		for _, row := range sec.Rows {
			v, ok := row.Comparisons[metric.Key]
			if !ok || len(v.Pairs) == 0 {
				continue
			}
			f := newForest(i, sec, row, metric, v)
			for _, p := range f.pairs {
				kinds[p.Finding] = true
			}
			box.Panels = append(box.Panels, panelBox{Title: at(sec, row) + f.heading, Plots: plots(f.svg())})
		}
		if len(box.Panels) > 0 {
			g.Figures = append(g.Figures, box)
		}
	}
	for _, k := range []struct {
		f     stats.Finding
		class string
		text  string
	}{{stats.Different, "k-dot", "significantly different"}, {stats.Unclear, "k-unclear", "no significant difference"}, {stats.Slight, "k-hollow", "significantly different, by less than the margin"}, {stats.Equal, "k-equal", "equal within the margin"}} {
		if kinds[k.f] {
			g.Keys = append(g.Keys, key{k.class, k.text})
		}
	}
	return g
}

type forest struct {
	section        int
	level, heading string
	metric         report.Metric
	title          string
	verdict        stats.Verdict
	pairs          []stats.Pair
	names          []string
}

func newForest(i int, sec report.Section, row report.Row, metric report.Metric, v stats.Verdict) forest {
	f := forest{section: i, level: exact(row.Level()), metric: metric, verdict: v,
		title: fmt.Sprintf("Differences in %s at %s", strings.ToLower(metric.Title), at(sec, row))}
	if len(v.Pairs) <= mostPairs && len(v.Ranking) > 2 {
		for _, p := range v.Pairs {
			f.pairs, f.names = append(f.pairs, p), append(f.names, p.B+" to "+p.A)
		}
		return f
	}
	f.heading = ", against " + v.Ranking[0]
	for _, p := range v.Pairs {
		if p.A == v.Ranking[0] {
			f.pairs, f.names = append(f.pairs, p), append(f.names, p.B)
		}
	}
	return f
}

func findingClass(f stats.Finding) string {
	return map[stats.Finding]string{stats.Different: "different", stats.Unclear: "unclear", stats.Slight: "slight", stats.Equal: "equal"}[f]
}

// Differences are drawn as ratios, on a logarithmic scale, so that twice and
// half are as far from none; farthest is where the scale ends.
const farthest = 3.0 // e to this, 20 times

// ratio is a difference as the scale has it.
func ratio(share float64) float64 { return math.Log1p(max(share, -0.999999)) }

func (f forest) svg() template.HTML {
	names := 0.0
	for _, n := range f.names {
		names = max(names, wide(n)+10)
	}
	above := names > 130
	step, left := rowHeight, names
	if above {
		step, left = rowHeight+nameHeight, 6
	}
	low, high := f.reach()
	tail := 0.0
	for _, p := range f.pairs {
		tail = max(tail, wide(briefly(p))+12)
	}
	right := panelWidth - tail
	bottom := 8 + step*float64(len(f.pairs))
	x := func(share float64) float64 {
		return left + (min(high, max(low, ratio(share)))-low)/(high-low)*(right-left)
	}
	d := newDrawing(panelWidth, bottom+axisHeight+2, f.title)
	d.rect(x(-f.verdict.Smallest), 2, x(f.verdict.Smallest)-x(-f.verdict.Smallest), bottom-2, "margin")
	for _, t := range ratioTicks(x, low, high) {
		d.line(x(t), 2, x(t), bottom, "grid")
		d.text(x(t), bottom+13, "tick m", percentTick(t))
	}
	d.line(x(0), 2, x(0), bottom, "zero")
	for i, p := range f.pairs {
		y := 8 + step*float64(i+1) - rowHeight/2
		d.line(0, y+rowHeight/2, panelWidth, y+rowHeight/2, "rule")
		if above {
			d.text(0, y-nameHeight+4, "name", f.names[i])
		} else {
			d.text(0, y+4, "name", f.names[i])
		}
		m := mark{value: p.Difference, low: p.Joint.Low, high: p.Joint.High, sure: true}
		d.group("g", where{f.section, "difference_" + f.metric.Key, p.A + "|" + p.B, f.level}.attributes(m, "pair "+findingClass(p.Finding))...)
		d.hint(fmt.Sprintf("%s against %s: %s (%s), %s; %d blocks, p = %.3g", p.B, p.A, percent(p.Difference), span(p.Joint), p.Finding, p.Blocks, p.P))
		d.line(x(p.Joint.Low), y, x(p.Joint.High), y, "interval")
		for _, e := range []struct{ v, dir float64 }{{p.Joint.Low, -1}, {p.Joint.High, 1}} {
			if v := ratio(e.v); v < low || v > high { // goes on beyond the scale
				d.tag("path", "class", "beyond", "d", fmt.Sprintf("M%s %sl%s -3.5v7z", short(x(e.v)+4*e.dir), short(y), short(-5*e.dir)))
			}
		}
		if v := ratio(p.Difference); low <= v && v <= high {
			d.circle(x(p.Difference), y, 4, "dot")
		}
		d.end()
		d.text(panelWidth, y+4, "figure e "+findingClass(p.Finding), briefly(p))
	}
	return d.html()
}

// briefly is a pair's difference; what is many times as much is said so.
func briefly(p stats.Pair) string {
	if p.Difference >= 9 {
		return "×" + figure(1+p.Difference)
	}
	return percent(p.Difference)
}

// reach is how far from no difference the scale goes, to both sides.
func (f forest) reach() (low, high float64) {
	high = ratio(f.verdict.Smallest) * 2
	low = -high
	for _, p := range f.pairs {
		for _, share := range []float64{p.Difference, p.Joint.Low, p.Joint.High} {
			low, high = min(low, ratio(share)), max(high, ratio(share))
		}
	}
	pad := 0.04 * (high - low)
	return max(low-pad, -farthest), min(high+pad, farthest)
}

// roundShares are those that ticks may have, the farthest first.
var roundShares = [2][]float64{
	{-0.95, -0.9, -0.75, -0.5, -0.3, -0.2, -0.1, -0.05, -0.02, -0.01},
	{19, 9, 4, 2, 1, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01},
}

// ratioTicks are 0 and, on each side, as many round shares as have room.
func ratioTicks(x func(float64) float64, low, high float64) []float64 {
	out := []float64{0}
	room := func(a, b float64) bool {
		return math.Abs(x(a)-x(b)) >= (wide(percentTick(a))+wide(percentTick(b)))*0.46+8
	}
	for _, side := range roundShares {
		last := math.NaN()
		for _, t := range side {
			if v := ratio(t); v < low || v > high || !room(t, 0) || !math.IsNaN(last) && !room(t, last) {
				continue
			}
			out, last = append(out, t), t
		}
	}
	return out
}

func percentTick(v float64) string {
	if v == 0 {
		return "0"
	}
	s := grouped(100*math.Abs(v), 0) + " %"
	if v < 0 {
		return "−" + s
	}
	return "+" + s
}
