// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"imbang/internal/lab/record"
)

// yardsticks says what an engine that does not balance stands for.
var yardsticks = map[string]string{
	"direct": "direct is the first real server alone, reached by plain forwarding without a balancer.",
}

// notes says what the tables alone do not.
func notes(rep *Report, samples, repeated []record.Sample) []string {
	var out []string
	if n := len(repeated); n > 0 {
		out = append(out, fmt.Sprintf("The version that made this run measured %d cells once more at the end of their block, because the generator was late. "+
			"The first run counts, as planned; the others are in %s and are not used.", n, record.SamplesFile))
	}
	if rep.Measured < rep.Planned {
		out = append(out, fmt.Sprintf("%d of %d planned runs were measured; the others failed or were interrupted.", rep.Measured, rep.Planned))
	}
	if line := shortfall(samples); line != "" {
		out = append(out, line)
	}
	for _, c := range rep.Caveats {
		out = append(out, fmt.Sprintf("%s: %s.", c.of, c.Text))
	}
	for _, name := range slices.Sorted(maps.Keys(yardsticks)) {
		if slices.ContainsFunc(rep.Sections, func(s Section) bool { return slices.Contains(s.Columns, name) }) {
			out = append(out, yardsticks[name])
		}
	}
	for _, c := range concentrated(rep) {
		out = append(out, fmt.Sprintf("%s sent every request of a cell to one server.", c.Name))
	}
	return append(out, failures(samples)...)
}

// shortfall gives one example of why the generator was late.
func shortfall(samples []record.Sample) string {
	n, example := 0, ""
	for _, s := range samples {
		if s.Load != nil && s.Load.Generator.Behind {
			n++
			example = fmt.Sprintf("%s: %s", s.Cell, s.Load.Generator.Reason)
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("The generator was late in %d runs (such as %s). They are marked, stay in their blocks, and every claim holds with and without them; "+
		"a cell whose every run was late is not ranked. Lower rates or more CPUs avoid this.", n, example)
}

// concentrated lists the competitors that used one server only, of several,
// where no address explains it.
func concentrated(rep *Report) []record.Competitor {
	var list []record.Competitor
	for _, sec := range rep.Sections {
		for _, row := range sec.Rows {
			for _, c := range row.Cells {
				if c.Scheduler == "" || c.Servers < 2 || c.Marks.OneServer > 0 || len(c.Spread) == 0 || slices.Contains(list, c.Competitor) {
					continue
				}
				if _, most := shares(c, rep.servers()); most >= oneServer && len(rep.servers()) > 1 {
					list = append(list, c.Competitor)
				}
			}
		}
	}
	return list
}

// servers lists every server that answered anywhere in the run.
func (rep *Report) servers() []string {
	var names []string
	for _, sec := range rep.Sections {
		for _, row := range sec.Rows {
			for _, c := range row.Cells {
				for name := range c.Spread {
					if !slices.Contains(names, name) {
						names = append(names, name)
					}
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// shares is the least and the greatest share of the servers.
func shares(c Cell, servers []string) (least, most float64) {
	least = 1
	for _, s := range servers {
		least, most = min(least, c.Spread[s]), max(most, c.Spread[s])
	}
	return least, most
}

// failures lists each different failure once.
func failures(samples []record.Sample) []string {
	var out []string
	for _, s := range samples {
		if s.Error == "" {
			continue
		}
		line := fmt.Sprintf("Failed: %s: %s", s.Cell, strings.TrimSpace(s.Error))
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return out
}
