// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
)

// drawing is an SVG that grows. All text and every value goes through one
// place that escapes it.
type drawing struct {
	b    strings.Builder
	open []string
}

// newDrawing begins a drawing of a size in CSS pixels, with what it shows for
// those who cannot see it.
func newDrawing(width, height float64, title string) *drawing {
	d := &drawing{}
	d.group("svg", "viewBox", "0 0 "+short(width)+" "+short(height), "width", width, "height", height, "role", "img", "aria-label", tidy(title))
	return d
}

// html ends the drawing.
func (d *drawing) html() template.HTML {
	for len(d.open) > 0 {
		d.end()
	}
	return template.HTML(d.b.String()) // attributes and text are escaped where they are written
}

// tag writes an element without content. Attributes are pairs of a name and a
// string or a number.
func (d *drawing) tag(name string, attributes ...any) {
	d.start(name, attributes)
	d.b.WriteString("/>")
}

// group begins an element that end closes.
func (d *drawing) group(name string, attributes ...any) {
	d.start(name, attributes)
	d.b.WriteString(">")
	d.open = append(d.open, name)
}

func (d *drawing) end() {
	last := len(d.open) - 1
	fmt.Fprintf(&d.b, "</%s>", d.open[last])
	d.open = d.open[:last]
}

func (d *drawing) start(name string, attributes []any) {
	d.b.WriteString("<" + name)
	for i := 0; i+1 < len(attributes); i += 2 {
		value := ""
		switch v := attributes[i+1].(type) {
		case string:
			value = template.HTMLEscapeString(v)
		case float64:
			value = short(v)
		case int:
			value = strconv.Itoa(v)
		default:
			panic(fmt.Sprintf("page: attribute %v of %s is a %T", attributes[i], name, v))
		}
		if value != "" {
			fmt.Fprintf(&d.b, ` %s="%s"`, attributes[i], value)
		}
	}
}

// text writes words at a place; class says how, and where they are anchored
// ("e" ends there, "m" has its middle there).
func (d *drawing) text(x, y float64, class, words string) {
	d.start("text", []any{"x", x, "y", y, "class", class})
	d.b.WriteString(">" + template.HTMLEscapeString(tidy(words)) + "</text>")
}

// hint is what a pointer that rests on the group says.
func (d *drawing) hint(words string) {
	d.b.WriteString("<title>" + template.HTMLEscapeString(tidy(words)) + "</title>")
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) {
	d.tag("line", "x1", x1, "y1", y1, "x2", x2, "y2", y2, "class", class)
}

func (d *drawing) rect(x, y, w, h float64, class string) {
	d.tag("rect", "x", x, "y", y, "width", max(0, w), "height", h, "class", class)
}

func (d *drawing) circle(x, y, r float64, class string) {
	d.tag("circle", "cx", x, "cy", y, "r", r, "class", class)
}

func (d *drawing) diamond(x, y, r float64, class string) {
	d.tag("path", "d", fmt.Sprintf("M%s %sl%s %s %s %s %s %sz", short(x-r), short(y), short(r), short(-r), short(r), short(r), short(-r), short(r)), "class", class)
}

// point is a place on a drawing.
type point struct{ x, y float64 }

// course is the path of a line through points.
func course(points []point) string {
	var b strings.Builder
	for i, p := range points {
		c := "L"
		if i == 0 {
			c = "M"
		}
		b.WriteString(c + short(p.x) + " " + short(p.y))
	}
	return b.String()
}

// short writes a number with a tenth of a pixel.
func short(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	s = strings.TrimSuffix(s, ".0")
	if s == "-0" {
		return "0"
	}
	return s
}

// wide estimates how wide a text of the drawings' size is.
func wide(words string) float64 { return 6.5 * float64(len([]rune(words))) }
