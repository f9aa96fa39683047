// SPDX-License-Identifier: Apache-2.0

package page

import (
	"html/template"
	"math"
	"strconv"
)

// panel has a row for each competitor and a column for each scale: what was
// measured, what was published. Names and figures stand beside their marks, so
// that any number of competitors can be distinguished without a colour for each.
type panel struct {
	title   string // for those who cannot see it
	rows    []panelRow
	columns []column
}

type panelRow struct {
	name   string
	strong bool // the best of all
	aside  bool // competes with none
}

// column has a scale of its own.
type column struct {
	title string
	class string // of its marks
	share float64
	tail  float64  // pixels for the figures behind the marks
	zero  bool     // the scale begins with 0
	marks [][]mark // by row
}

// mark is one figure of a row.
type mark struct {
	value     float64
	low, high float64 // the interval, if there is one
	sure      bool    // there is an interval
	runs      []float64
	shape     string // "": a disc, "diamond", "square"
	hollow    bool   // not ranked
	label     string // the figure in words
	hint      string
	at        where
}

// where says of what in the report a mark is.
type where struct {
	section           int
	metric, of, level string
}

const (
	panelWidth = 372.0
	rowHeight  = 20.0
	headHeight = 22.0 // titles of columns
	axisHeight = 18.0 // ticks
	asideGap   = 9.0
	longName   = 78.0 // pixels; longer names stand above their row
	nameHeight = 15.0
)

func (p panel) svg() template.HTML {
	names, above := p.names()
	step := rowHeight
	if above {
		step += nameHeight
	}
	y := p.places(step)
	bottom := y[len(y)-1] + rowHeight/2 + 1
	d := newDrawing(panelWidth, bottom+axisHeight, p.title)
	for i := range p.rows {
		d.line(0, y[i]+rowHeight/2, panelWidth, y[i]+rowHeight/2, "rule")
	}
	left := names
	for _, c := range p.columns {
		width := (panelWidth-names)*c.share - columnGap
		c.draw(d, y, left, left+width, headHeight-6, bottom)
		left += width + columnGap
	}
	for i, r := range p.rows {
		class := "name"
		if r.strong {
			class += " strong"
		}
		if r.aside {
			class += " soft"
		}
		if above {
			d.text(0, y[i]-nameHeight+4, class, r.name)
		} else {
			d.text(0, y[i]+4, class, r.name)
		}
	}
	return d.html()
}

const columnGap = 8.0

// names is the room for names, 0 if they stand above their rows.
func (p panel) names() (width float64, above bool) {
	for _, r := range p.rows {
		width = max(width, wide(r.name)+8)
	}
	if width > longName {
		return 0, true
	}
	return width, false
}

// places are the middles of the rows.
func (p panel) places(step float64) []float64 {
	var y []float64
	at := headHeight + step - rowHeight/2
	for i, r := range p.rows {
		if i > 0 && r.aside && !p.rows[i-1].aside {
			at += asideGap
		}
		y = append(y, at)
		at += step
	}
	return y
}

// draw draws the column between two pixels.
func (c column) draw(d *drawing, y []float64, left, right, top, bottom float64) {
	const inset = 6 // so that marks at the end are not cut off
	end := right - c.tail
	s := c.scale(left+inset, end-inset)
	d.text(left+inset-4, 11, "head "+c.class, c.title)
	for _, t := range s.ticks {
		x := s.at(t)
		d.line(x, top, x, bottom, "grid")
	}
	s.axis(d, bottom+12)
	for i, row := range c.marks {
		for _, m := range row {
			m.draw(d, s, y[i], c.class)
		}
		if c.tail > 0 && len(row) > 0 {
			class := "figure " + c.class
			if row[0].hollow {
				class += " soft"
			}
			d.text(end+4, y[i]+4, class, row[0].label)
		}
	}
}

// axis writes the ticks' labels below, as many as have room.
func (s scale) axis(d *drawing, y float64) {
	free := math.Inf(-1)
	for _, t := range s.ticks {
		label := s.label(t)
		x, half := s.at(t), wide(label)*0.46
		left := max(x-half, s.from-6)
		if left < free {
			continue
		}
		class := "tick m"
		if left > x-half { // at the edge
			class, x = "tick", left
		}
		d.text(x, y, class, label)
		free = left + 2*half + 4
	}
}

func (c column) scale(from, to float64) scale {
	var all []float64
	for _, row := range c.marks {
		for _, m := range row {
			all = append(all, m.value)
			all = append(all, m.runs...)
			if m.sure {
				all = append(all, m.low, m.high)
			}
		}
	}
	n := max(2, int((to-from)/42))
	if c.zero {
		high := 0.0
		for _, v := range all {
			high = max(high, v)
		}
		return fromZero(high, from, to, n)
	}
	return newScale(all, from, to, n)
}

func (m mark) draw(d *drawing, s scale, y float64, class string) {
	if m.hollow {
		class += " hollow"
	}
	d.group("g", m.at.attributes(m, class)...)
	if m.hint != "" {
		d.hint(m.hint)
	}
	for _, v := range m.runs {
		d.circle(s.at(v), y, 1.6, "run")
	}
	if m.sure {
		d.line(s.at(m.low), y, s.at(m.high), y, "interval")
	}
	x := s.at(m.value)
	switch m.shape {
	case "diamond":
		d.diamond(x, y, 4.6, "dot")
	case "square":
		d.rect(x-3.4, y-3.4, 6.8, 6.8, "dot")
	default:
		d.circle(x, y, 4, "dot")
	}
	d.end()
}

// attributes tell programs, and the test, what is plotted here.
func (w where) attributes(m mark, class string) []any {
	list := []any{"class", class, "data-section", w.section, "data-metric", w.metric, "data-of", w.of, "data-level", w.level, "data-value", exact(m.value)}
	if m.sure {
		list = append(list, "data-low", exact(m.low), "data-high", exact(m.high))
	}
	return list
}

// exact writes a figure so that nothing is lost.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
