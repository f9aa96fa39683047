// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
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
	marks := ""
	for _, key := range keys {
		i := slices.IndexFunc(report.Metrics(), func(m report.Metric) bool { return m.Key == key })
		if i < 0 {
			return "", fmt.Errorf("no metric %q", key)
		}
		m := report.Metrics()[i]
		for _, row := range rows {
			label := fmt.Sprintf("%s [%s]", strings.ToLower(m.Title[:1])+m.Title[1:], m.Unit)
			switch {
			case len(rows) > 1 && len(keys) == 1:
				label = row.Condition.String()
			case len(rows) > 1:
				label += ", " + row.Condition.String()
			}
			line, published, found := cells(row, columns, m)
			marks += found
			fmt.Fprintf(&b, "| %s | %s |\n", escape(label), line)
			if published != "" {
				fmt.Fprintf(&b, "| published | %s |\n", published)
			}
		}
	}
	return b.String() + legend(marks), nil
}

// cells are a row's figures for the columns, those published, and all marks.
func cells(row report.Row, columns []string, m report.Metric) (line, published, marks string) {
	var figures, originals []string
	any := false
	for _, name := range columns {
		figure, original := "", ""
		for _, c := range row.Cells {
			if c.Name != name {
				continue
			}
			v := c.Values[m.Key]
			if v.N > 0 {
				figure = fmt.Sprintf("%.*f", m.Decimals, v.Median)
			}
			if v.N > 1 && v.Interval != nil {
				figure += fmt.Sprintf(" (%.*f to %.*f)", m.Decimals, v.Interval.Low, m.Decimals, v.Interval.High)
			}
			if s := c.Marks.String(); s != "" && v.N > 0 {
				figure, marks = figure+" "+escape(s), marks+s
			}
			if v.Published != nil {
				original, any = fmt.Sprintf("%g", *v.Published), true
			}
		}
		figures, originals = append(figures, figure), append(originals, original)
	}
	if any {
		published = strings.Join(originals, " | ")
	}
	return strings.Join(figures, " | "), published, marks
}

// legend explains the marks that a table has.
func legend(marks string) string {
	var parts []string
	for _, line := range strings.Split(strings.TrimSpace(report.Legend()), "\n") {
		mark, meaning, _ := strings.Cut(line, " ")
		if strings.Contains(marks, mark) {
			parts = append(parts, escape(mark)+" "+escape(meaning))
		}
	}
	text := "Medians, in brackets the interval that holds the median"
	if len(parts) > 0 {
		text += "; " + strings.Join(parts, "; ")
	}
	return "\n" + text + ".\n"
}
