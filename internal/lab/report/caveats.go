// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// Caveat is what figures do not mean, or what a tool does not tell.
type Caveat struct {
	Text  string   `json:"text"`
	Cells []string `json:"cells"` // as in "rr at 2000/s"

	of string // the same in words
}

// caveats collects those of all loads, each once.
func caveats(samples []record.Sample) (list []Caveat) {
	var measured []record.Cell
	concern := map[string][]record.Cell{}
	var order []string
	for _, s := range samples {
		if s.Load == nil {
			continue
		}
		measured = once(measured, s.Cell)
		for _, text := range slices.Concat(s.Load.Caveats, silence(s.Load), strain(s.Load), capped(s)) {
			if concern[text] == nil {
				order = append(order, text)
			}
			concern[text] = once(concern[text], s.Cell)
		}
	}
	for _, text := range order {
		c := Caveat{Text: text, of: cellsIn(concern[text], measured)}
		for _, cell := range concern[text] {
			c.Cells = append(c.Cells, cell.String())
		}
		slices.Sort(c.Cells) // their order of measurement is random
		list = append(list, c)
	}
	return list
}

func once(list []record.Cell, c record.Cell) []record.Cell {
	if slices.Contains(list, c) {
		return list
	}
	return append(list, c)
}

// silence says what a tool does not tell.
func silence(r *load.Result) []string {
	if len(r.Absent) == 0 {
		return nil
	}
	who := r.Tool
	if who == "" {
		who = study.BuiltIn
	}
	return []string{fmt.Sprintf("%s says nothing of %s: they have no figure", who, strings.Join(r.Absent, ", "))}
}

// strain says that a client that kept its schedule was near its limit. Other
// tools may use all CPU time there is without need.
func strain(r *load.Result) []string {
	if r.Tool != "" || r.Generator.Behind || len(r.Limits()) == 0 || r.Loss.Client.Total() > 0 {
		return nil
	}
	return []string{"the generator kept its schedule, but its busiest thread ran or waited for a CPU for 90 % of the time or more, " +
		"or waited for 10 % or more: compare the generator delay with the response times"}
}

// cellsIn names cells by what they have in common, if nothing else measured
// has it too.
func cellsIn(cells, measured []record.Cell) string {
	if len(cells) == len(measured) {
		return "all cells"
	}
	for _, common := range []func(record.Cell) string{
		func(c record.Cell) string { return c.Tool },
		func(c record.Cell) string { return c.Condition.String() },
		func(c record.Cell) string { return c.Name },
	} {
		word := common(cells[0])
		other := func(c record.Cell) bool { return common(c) != word }
		if !slices.ContainsFunc(cells, other) && len(slices.DeleteFunc(slices.Clone(measured), other)) == len(cells) {
			return "all cells of " + word
		}
	}
	const most = 4
	var names []string
	for _, c := range cells {
		names = append(names, c.String())
	}
	slices.Sort(names)
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// tells reports whether a result knows all of the fields, by their names in
// its JSON: what a tool does not say is 0 there and means nothing.
func tells(r *load.Result, fields ...string) bool {
	return !slices.ContainsFunc(fields, func(f string) bool { return slices.Contains(r.Absent, f) })
}
