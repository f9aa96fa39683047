// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"imbang/internal/lab/report"
)

// table sets competitors beside each other, one metric under several
// conditions or several metrics under one: medians with their intervals and
// marks, and below them what was published.
func table(r *stored, q query) (string, error) {
	keys, at, of := split(q.take("metric", ""), ","), q.take("at", ""), q.take("of", "")
	rows := r.rows(at)
	if len(rows) == 0 {
		return "", fmt.Errorf("no condition %q", at)
	}
	var columns []string
	for _, c := range rows[0].Cells {
		if of == "" || slices.Contains(split(of, ","), c.Name) {
			columns = append(columns, c.Name)
		}
	}
	if len(columns) == 0 || of != "" && len(columns) != len(split(of, ",")) {
		return "", fmt.Errorf("not all of %q are competitors", of)
	}
	var b strings.Builder
	b.WriteString("|")
	for _, name := range columns {
		b.WriteString(" | " + escape(name))
	}
	fmt.Fprintf(&b, " |\n|%s\n", strings.Repeat(" --- |", len(columns)+1))
	var n notes
	for _, key := range keys {
		i := slices.IndexFunc(report.Metrics(), func(m report.Metric) bool { return m.Key == key })
		if i < 0 {
			return "", fmt.Errorf("no metric %q", key)
		}
		m := report.Metrics()[i]
		for _, row := range rows {
			label := fmt.Sprintf("%s [%s]", m.Title, m.Unit)
			switch {
			case len(rows) > 1 && len(keys) == 1:
				label = row.Condition.String()
			case len(rows) > 1:
				label += ", " + row.Condition.String()
			}
			line, published := n.cells(row, columns, m)
			fmt.Fprintf(&b, "| %s | %s |\n", escape(label), line)
			if published != "" {
				fmt.Fprintf(&b, "| published | %s |\n", published)
			}
		}
	}
	return b.String() + n.String(), nil
}

// notes are what stands below a table.
type notes struct {
	marks        string
	fewest       int // runs of a cell
	most         int
	leastCertain float64 // level of confidence of an interval, 0 to 1
}

// cells are a row's figures for the columns, and those published.
func (n *notes) cells(row report.Row, columns []string, m report.Metric) (line, published string) {
	var figures, originals []string
	any := false
	for _, name := range columns {
		i := slices.IndexFunc(row.Cells, func(c report.Cell) bool { return c.Name == name })
		if i < 0 {
			figures, originals = append(figures, ""), append(originals, "")
			continue
		}
		c, original := row.Cells[i], ""
		v := c.Values[m.Key]
		if v.Published != nil {
			original, any = fmt.Sprintf("%g", *v.Published), true
		}
		figures, originals = append(figures, n.figure(c, v, m)), append(originals, original)
	}
	if any {
		published = strings.Join(originals, " | ")
	}
	return strings.Join(figures, " | "), published
}

// figure is a cell's median with its interval and marks.
func (n *notes) figure(c report.Cell, v report.Value, m report.Metric) string {
	if v.N == 0 {
		return ""
	}
	text := fmt.Sprintf("%.*f", m.Decimals, v.Median)
	if n.most == 0 {
		n.fewest = v.N
	}
	n.fewest, n.most = min(n.fewest, v.N), max(n.most, v.N)
	if v.N > 1 && v.Interval != nil {
		text += fmt.Sprintf(" (%.*f to %.*f)", m.Decimals, v.Interval.Low, m.Decimals, v.Interval.High)
		if n.leastCertain == 0 || v.Interval.Level < n.leastCertain {
			n.leastCertain = v.Interval.Level
		}
	}
	if s := c.Marks.String(); s != "" {
		text, n.marks = text+" "+escape(s), n.marks+s
	}
	return text
}

// String says what the figures, brackets and marks are.
func (n *notes) String() string {
	if n.most == 0 {
		return ""
	}
	runs := fmt.Sprint(n.most)
	if n.fewest < n.most {
		runs = fmt.Sprintf("%d to %d", n.fewest, n.most)
	}
	text := fmt.Sprintf("Medians of %s runs", runs)
	if n.most == 1 {
		text = "One run of each"
	}
	if n.leastCertain > 0 {
		text += fmt.Sprintf("; in brackets the interval that holds the median with %.0f %% confidence or more", math.Floor(100*n.leastCertain))
	}
	for _, line := range strings.Split(strings.TrimSpace(report.Legend()), "\n") {
		if mark, meaning, _ := strings.Cut(line, " "); strings.Contains(n.marks, mark) {
			text += "; " + escape(mark) + " " + escape(meaning)
		}
	}
	return "\n" + text + ".\n"
}
