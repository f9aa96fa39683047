// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"

	"imbang/internal/lab/report"
)

// bars has a row for each competitor and in it parts that follow each other.
type bars struct {
	title string
	unit  string
	rows  []barRow
	end   float64 // of the scale; 0 finds it
}

type barRow struct {
	panelRow
	parts []barPart
	tail  string
	ticks []float64 // places where parts were to end
}

type barPart struct {
	value float64
	class string
	label string
	hint  string
}

func (b bars) svg() template.HTML {
	p := panel{}
	tail, high := 0.0, b.end
	for _, r := range b.rows {
		p.rows = append(p.rows, r.panelRow)
		tail = max(tail, wide(r.tail)+6)
		if sum := r.sum(); b.end == 0 {
			high = max(high, sum)
		}
	}
	names, above := p.names()
	step := rowHeight
	if above {
		step += nameHeight
	}
	y := p.places(step)
	for i := range y {
		y[i] -= headHeight - 8
	}
	bottom := y[len(y)-1] + rowHeight/2 + 2
	left, right := names, panelWidth-tail-4
	s := fromZero(high, left, right, 4)
	if b.end > 0 {
		s = scale{high: b.end, from: left, to: right, ticks: linearTicks(0, b.end, 4)}
	}
	d := newDrawing(panelWidth, bottom+axisHeight, b.title)
	for _, t := range s.ticks {
		d.line(s.at(t), 4, s.at(t), bottom, "grid")
	}
	s.axisWith(d, bottom+12, b.unit)
	for i, r := range b.rows {
		name := y[i] + 4
		if above {
			name = y[i] - nameHeight + 4
		}
		class := "name"
		if r.aside {
			class += " soft"
		}
		d.text(0, name, class, r.name)
		r.draw(d, s, y[i])
		if r.tail != "" {
			d.text(right+6, y[i]+4, "figure soft", r.tail)
		}
	}
	return d.html()
}

func (r barRow) sum() (s float64) {
	for _, p := range r.parts {
		s += p.value
	}
	return s
}

func (r barRow) draw(d *drawing, s scale, y float64) {
	from := 0.0
	for _, p := range r.parts {
		x, w := s.at(from), s.at(from+p.value)-s.at(from)
		from += p.value
		if p.value <= 0 {
			continue
		}
		d.group("g", "class", p.class)
		d.hint(p.hint)
		d.rect(x, y-6, max(0.8, w-1), 12, "bar")
		if p.label != "" && w > wide(p.label)+6 {
			d.text(x+w/2, y+3.5, "inbar m", p.label)
		}
		d.end()
	}
	for _, t := range r.ticks {
		d.line(s.at(t)-0.5, y-9.5, s.at(t)-0.5, y-6, "due")
		d.line(s.at(t)-0.5, y+6, s.at(t)-0.5, y+9.5, "due")
	}
}

// axisWith writes the ticks with a unit behind.
func (s scale) axisWith(d *drawing, y float64, unit string) {
	for i, t := range s.ticks {
		class := "tick m"
		if i == 0 {
			class = "tick"
		} else if i == len(s.ticks)-1 && s.at(t) > s.to-12 {
			class = "tick e"
		}
		d.text(s.at(t), y, class, s.label(t)+unit)
	}
}

// serverClass is the colour of a server.
func serverClass(i int) string { return fmt.Sprintf("f%d", i%8+1) }

func (m *maker) serverKeys() (keys []key) {
	for i, s := range m.servers {
		keys = append(keys, key{"k-" + serverClass(i), s})
	}
	return keys
}

// shares shows which server answered how much.
func (m *maker) shares(sec report.Section) group {
	g := group{ID: "spread", Title: "Where the load went", Say: "Share of the replies that each real server gave, in percent.", Keys: m.serverKeys()}
	if len(m.servers) < 2 {
		return group{}
	}
	box := figureBox{Class: levelsClass(len(sec.Rows))}
	due := false
	for _, row := range sec.Rows {
		b := bars{title: "Share of the replies by server at " + at(sec, row), unit: " %", end: 100}
		for _, c := range row.Cells {
			r := barRow{panelRow: panelRow{name: c.Name, aside: c.Yardstick()}, ticks: m.due(c)}
			due = due || len(r.ticks) > 0
			for i, s := range m.servers {
				share := 100 * c.Spread[s]
				r.parts = append(r.parts, barPart{share, serverClass(i), grouped(share, 0), fmt.Sprintf("%s: %s answered %s %%", c.Name, s, figure(share))})
			}
			if r.sum() == 0 {
				r.tail = "–"
			}
			b.rows = append(b.rows, r)
		}
		box.Panels = append(box.Panels, panelBox{Title: at(sec, row), Plots: plots(b.svg())})
	}
	if due {
		g.Keys = append(g.Keys, key{"k-due", "shares by weight"})
	}
	g.Figures = []figureBox{box}
	return g
}

// due are the ends of the servers' shares if they went by weight.
func (m *maker) due(c report.Cell) (ends []float64) {
	weights := m.study.WeightsOf(c.Weights).Weights
	if c.Scheduler == "" || c.Servers < 2 || c.Servers > len(weights) || c.Servers != len(m.servers) {
		return nil
	}
	total, sum := 0, 0
	for _, w := range weights[:c.Servers] {
		total += w
	}
	for _, w := range weights[:c.Servers-1] {
		sum += w
		ends = append(ends, 100*float64(sum)/float64(max(1, total)))
	}
	return ends
}

// lossWords says what the causes of loss are.
var lossWords = map[string]string{
	"client": "the generator's own machine", "refused": "refused", "reset": "reset", "timeout": "no reply in time",
	"other": "unreachable, cut off or no HTTP", "unnamed": "cause not told by the tool",
}

// loss shows what was lost and why, or says that nothing was.
func (m *maker) loss(sec report.Section) group {
	g := group{ID: "loss", Title: "Requests lost"}
	total, lost, high := 0, 0, 0.0
	for _, row := range sec.Rows {
		for _, c := range row.Cells {
			total, lost = total+c.Scheduled, lost+c.Lost
			if c.Scheduled > 0 {
				high = max(high, 100*float64(c.Lost)/float64(c.Scheduled))
			}
		}
	}
	if lost == 0 {
		g.Plain = fmt.Sprintf("None of %s requests was lost.", grouped(float64(total), 0))
		return g
	}
	g.Say = fmt.Sprintf("%s of %s requests were lost, all runs together. In percent of the requests of a cell, by cause.", grouped(float64(lost), 0), grouped(float64(total), 0))
	box := figureBox{Class: levelsClass(len(sec.Rows))}
	seen := map[string]bool{}
	var none []string
	for _, row := range sec.Rows {
		b := bars{title: "Requests lost by cause at " + at(sec, row), unit: " %", end: high * 1.04}
		any := false
		for _, c := range row.Cells {
			r := barRow{panelRow: panelRow{name: c.Name, aside: c.Yardstick()}}
			for i, cause := range report.LossCauses() {
				n := c.Loss[cause]
				if n == 0 {
					continue
				}
				seen[cause], any = true, true
				part := 100 * float64(n) / float64(max(1, c.Scheduled))
				r.parts = append(r.parts, barPart{part, fmt.Sprintf("l%d", i+1), "", fmt.Sprintf("%s: %d of %d requests lost: %s", c.Name, n, c.Scheduled, lossWords[cause])})
			}
			r.tail = grouped(float64(c.Lost), 0)
			b.rows = append(b.rows, r)
		}
		if any {
			box.Panels = append(box.Panels, panelBox{Title: at(sec, row), Plots: plots(b.svg())})
		} else {
			none = append(none, at(sec, row))
		}
	}
	if len(none) > 0 {
		g.Say += " None at " + listed(none) + "."
	}
	for i, cause := range report.LossCauses() {
		if seen[cause] {
			g.Keys = append(g.Keys, key{fmt.Sprintf("k-l%d", i+1), lossWords[cause]})
		}
	}
	g.Figures = []figureBox{box}
	return g
}
