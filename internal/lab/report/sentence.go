// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strings"

	"imbang/internal/lab/stats"
)

// sentence puts a verdict into words. medians are the competitors' own.
func sentence(m Metric, v stats.Verdict, medians map[string]Value) string {
	switch v.Outcome {
	case stats.NotMeasurable:
		return m.Title + ": nothing to compare."
	case stats.TooFewBlocks:
		return fmt.Sprintf("%s: no verdict: %s.", m.Title, runsNeeded(v))
	case stats.AllEqual:
		return fmt.Sprintf("No winner: in %s all are equal within %s by their joint intervals: %s.", m.Name, share(v.Smallest), strings.Join(v.Ranking, ", "))
	}
	first := v.Ranking[0]
	word := "highest"
	if m.Lowest {
		word = "lowest"
	}
	if v.Outcome == stats.Winner {
		p, _ := v.Pair(0, 1)
		return fmt.Sprintf("Winner: %s has the %s %s, %s, significantly different from all others; next: %s, a %s difference.", first, word, m.Name,
			figure(m, medians[first]), against(v, stats.Different)[0], stats.Size(p.Difference, v.Smallest))
	}
	line := fmt.Sprintf("No winner: %s is first in %s, %s", first, m.Name, figure(m, medians[first]))
	if names, hull := together(v); len(names) > 0 {
		line += fmt.Sprintf("; no significant difference to %s (joint intervals within %s)", strings.Join(names, ", "), hull)
	}
	for _, f := range []struct {
		finding stats.Finding
		word    string
	}{
		{stats.Equal, "equal within " + share(v.Smallest)}, {stats.Slight, "significantly different, by an estimate below " + share(v.Smallest)},
		{stats.Different, "significantly different"},
	} {
		if list := against(v, f.finding); len(list) > 0 {
			line += fmt.Sprintf("; %s: %s", f.word, strings.Join(list, ", "))
		}
	}
	return line + "." + groupsOf(v)
}

// figure writes a median with its interval.
func figure(m Metric, v Value) string {
	s := fmt.Sprintf("%.*f %s", m.Decimals, v.Median, m.Unit)
	if v.Interval != nil {
		s += fmt.Sprintf(" (%.*f to %.*f)", m.Decimals, v.Interval.Low, m.Decimals, v.Interval.High)
	}
	return s
}

// against lists those of which the first is known so much, with differences.
func against(v stats.Verdict, f stats.Finding) []string {
	var out []string
	for i := 1; i < len(v.Ranking); i++ {
		if p, ok := v.Pair(0, i); ok && p.Finding == f {
			out = append(out, fmt.Sprintf("%s %s (%s)", p.B, stats.Percent(p.Difference), p.Joint))
		}
	}
	return out
}

// together names those that do not differ significantly from the first, and an
// interval that holds all their differences.
func together(v stats.Verdict) (names []string, hull stats.Interval) {
	hull = stats.Interval{Low: math.Inf(1), High: math.Inf(-1)}
	for i := 1; i < len(v.Ranking); i++ {
		if p, ok := v.Pair(0, i); ok && p.Finding == stats.Unclear {
			names = append(names, p.B)
			hull.Low, hull.High = min(hull.Low, p.Joint.Low), max(hull.High, p.Joint.High)
		}
	}
	return names, hull
}

// groupsOf adds the groups where the comparisons with the first do not give them.
func groupsOf(v stats.Verdict) string {
	if len(v.Groups) < 2 {
		return ""
	}
	var parts []string
	for _, g := range v.Groups {
		parts = append(parts, strings.Join(g, " "))
	}
	return " Groups without a significant difference: " + strings.Join(parts, " | ") + "."
}

// share writes a share without a sign.
func share(x float64) string { return fmt.Sprintf("%g %%", 100*x) }
