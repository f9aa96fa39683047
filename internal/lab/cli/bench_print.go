// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"imbang/internal/lab/bench"
)

// printTargets lists targets with what was measured.
func printTargets(w io.Writer, targets []bench.Target) error {
	if len(targets) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "\nmeasure\ttarget\tmeasured\t\n")
	for _, one := range targets {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", one.Name, one.Bound(), one.Figure(), one.Verdict())
	}
	return t.Flush()
}

// ratioHeads are the columns of ratios of a row, ratios those of one: medians
// with their intervals.
func ratioHeads(others []string) string {
	var s strings.Builder
	for _, o := range others {
		s.WriteString("ratio to " + o + "\t")
	}
	return s.String()
}

func ratios(r bench.PathRow, others []string) string {
	var s strings.Builder
	for _, o := range others {
		if v, ok := r.Over[o]; ok {
			s.WriteString(bench.Between(v, r.Within[o]))
		}
		s.WriteString("\t")
	}
	return s.String()
}

// causes are those of losses, in brackets.
func causes(m map[string]int) string {
	if len(m) == 0 {
		return ""
	}
	var list []string
	for _, c := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s %d", c, m[c]))
	}
	return " (" + strings.Join(list, ", ") + ")"
}
