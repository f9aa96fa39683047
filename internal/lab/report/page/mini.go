// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"math"
)

// Lines of more competitors than mostLines in one plot are spaghetti. Then
// each gets a plot of its own, in which the others are a grey background.
const mostLines = 5

// line is one competitor in a plot of lines.
type line struct {
	name   string
	aside  bool
	points []sample
}

// sample is a figure at a place on the horizontal axis.
type sample struct {
	x, y      float64
	low, high float64
	sure      bool
	hollow    bool
	marked    bool // has a disc
	hint      string
	at        where
}

// lines is a plot of several lines, or as many plots of one.
type lines struct {
	id, title string
	unit      string                // of the vertical axis
	ticks     []labelled            // of the horizontal axis
	across    func(float64) float64 // places on the horizontal axis, to 0..1
	list      []line
}

type labelled struct {
	x     float64
	label string
}

// plots are the drawings: one with all lines, or one a line.
func (l lines) plots() (one bool, list []template.HTML) {
	if len(l.list) <= mostLines {
		return true, []template.HTML{l.together()}
	}
	return false, l.separate()
}

// frame is the inner part of a plot.
type frame struct{ left, right, top, bottom float64 }

func (l lines) vertical(f frame, n int) scale {
	var all []float64
	for _, one := range l.list {
		for _, p := range one.points {
			all = append(all, p.y)
			if p.sure {
				all = append(all, p.low, p.high)
			}
		}
	}
	return newScale(all, f.bottom, f.top, n)
}

func (l lines) x(f frame, v float64) float64 { return f.left + l.across(v)*(f.right-f.left) }

// axes draws grid, ticks and the unit.
func (l lines) axes(d *drawing, f frame, s scale) {
	for _, t := range s.ticks {
		y := s.at(t)
		d.line(f.left, y, f.right, y, "grid")
		d.text(f.left-5, y+3.5, "tick e", s.label(t))
	}
	free := math.Inf(-1)
	for i, t := range l.ticks {
		x, half := l.x(f, t.x), wide(t.label)*0.46
		class, from := "tick m", x-half
		if i == len(l.ticks)-1 && x+half > f.right+4 {
			class, x, from = "tick e", f.right+4, f.right+4-2*half
		}
		d.line(l.x(f, t.x), f.bottom, l.x(f, t.x), f.bottom+3, "axis")
		if from < free {
			continue
		}
		d.text(x, f.bottom+14, class, t.label)
		free = from + 2*half + 5
	}
	d.line(f.left, f.bottom, f.right, f.bottom, "axis")
}

// together draws all lines in one plot, with their names at their ends.
func (l lines) together() template.HTML {
	names := 0.0
	for _, one := range l.list {
		names = max(names, wide(one.name))
	}
	names = min(0.92*names, 150)
	f := frame{46, panelWidth - names - 12, 22, 206}
	d := newDrawing(panelWidth, 226, l.title)
	s := l.vertical(f, 5)
	d.text(0, 11, "head", l.unit)
	l.axes(d, f, s)
	var ends []float64
	for i, one := range l.list {
		class := fmt.Sprintf("line c%d", i+1)
		if one.aside {
			class = "line aside"
		}
		d.group("g", "class", class)
		l.draw(d, f, s, one, i)
		d.end()
		if n := len(one.points); n > 0 {
			ends = append(ends, s.at(one.points[n-1].y))
		} else {
			ends = append(ends, math.NaN())
		}
	}
	for i, y := range spread(ends, 14, f.top, f.bottom) {
		if math.IsNaN(y) {
			continue
		}
		class := fmt.Sprintf("name ink%d", i+1)
		if l.list[i].aside {
			class = "name soft"
		}
		last := l.list[i].points[len(l.list[i].points)-1]
		if x := l.x(f, last.x); math.Abs(y-ends[i]) > 3 || x < f.right-6 {
			d.line(x+3, ends[i], f.right+7, y, "leader")
		}
		d.text(f.right+9, y+4, class, l.list[i].name)
	}
	return d.html()
}

// draw draws one line: its course, intervals and points.
func (l lines) draw(d *drawing, f frame, s scale, one line, dash int) {
	var path []point
	for _, p := range one.points {
		path = append(path, point{l.x(f, p.x), s.at(p.y)})
	}
	d.tag("path", "d", course(path), "class", "course")
	for i, p := range one.points {
		if !p.marked {
			continue
		}
		class := "at"
		if p.hollow {
			class += " hollow"
		}
		m := mark{value: p.y, low: p.low, high: p.high, sure: p.sure}
		d.group("g", p.at.attributes(m, class)...)
		d.hint(p.hint)
		if p.sure {
			d.line(path[i].x, s.at(p.low), path[i].x, s.at(p.high), "interval")
		}
		switch dash % 3 {
		case 1:
			d.rect(path[i].x-3, path[i].y-3, 6, 6, "dot")
		case 2:
			d.diamond(path[i].x, path[i].y, 4, "dot")
		default:
			d.circle(path[i].x, path[i].y, 3.2, "dot")
		}
		d.end()
	}
}

// separate draws a plot for each line. The background is drawn once, in the
// first, and the others refer to it.
func (l lines) separate() (list []template.HTML) {
	const width, height = 178.0, 116.0
	f := frame{38, width - 8, 24, height - 20}
	s := l.vertical(f, 3)
	for i, one := range l.list {
		d := newDrawing(width, height, l.title+": "+one.name)
		d.text(0, 12, "name strong", one.name)
		l.axes(d, f, s)
		if i == 0 {
			d.group("g", "id", l.id, "class", "others")
			for _, other := range l.list {
				var path []point
				for _, p := range other.points {
					path = append(path, point{l.x(f, p.x), s.at(p.y)})
				}
				d.tag("path", "d", course(path))
			}
			d.end()
		} else {
			d.tag("use", "href", "#"+l.id)
		}
		class := "line c1"
		if one.aside {
			class = "line aside"
		}
		d.group("g", "class", class)
		l.draw(d, f, s, one, 0)
		d.end()
		list = append(list, d.html())
	}
	return list
}

// spread moves labels that would overlap, no farther than necessary. NaN
// stands for no label.
func spread(y []float64, gap, top, bottom float64) []float64 {
	out := append([]float64(nil), y...)
	var order []int
	for i := range out {
		if !math.IsNaN(out[i]) {
			order = append(order, i)
		}
	}
	sortBy(order, func(i int) float64 { return out[i] })
	for range 60 {
		moved := false
		for k := 1; k < len(order); k++ {
			a, b := order[k-1], order[k]
			if short := gap - (out[b] - out[a]); short > 0.01 {
				out[a], out[b], moved = out[a]-short/2, out[b]+short/2, true
			}
		}
		for _, i := range order {
			out[i] = min(bottom, max(top, out[i]))
		}
		if !moved {
			break
		}
	}
	return out
}
