// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/report"
	"imbang/internal/lab/stats"
)

// verdict is what is said of one level, in short and in full.
type verdict struct {
	Level string
	Lines []said
	Full  []string
}

// said is one answer: a badge and a sentence.
type said struct {
	Kind  string // winner, equal, open, none
	Badge string
	Text  string
}

func newVerdict(sec report.Section, row report.Row) verdict {
	v := verdict{Level: at(sec, row), Full: tidyAll(row.Verdicts)}
	for _, m := range report.Metrics() {
		if c, ok := row.Comparisons[m.Key]; ok {
			v.Lines = append(v.Lines, answer(m, row, c))
		}
	}
	if len(v.Lines) == 0 {
		v.Lines = []said{noAnswer(row)}
		return v
	}
	for _, x := range []struct {
		badge string
		lossy bool
	}{{"Not ranked", false}, {"Responses not ranked", true}} {
		if out := notRanked(row, x.lossy); len(out) > 0 {
			v.Lines = append(v.Lines, said{"rest", x.badge, sentenceCase(strings.Join(out, "; ")) + "."})
		}
	}
	return v
}

// answer puts a comparison into a badge and a sentence.
func answer(m report.Metric, row report.Row, c stats.Verdict) said {
	name := m.Name
	if name == "" {
		name = strings.ToLower(m.Title)
	}
	switch c.Outcome {
	case stats.NotMeasurable:
		return said{"none", "Not measurable here", fmt.Sprintf("In %s fewer than two can be compared.", name)}
	case stats.TooFewBlocks:
		return said{"none", "Too few repeats", fmt.Sprintf("%s: %s; to compare %d it takes at least %d.", sentenceCase(name), ofEach(c.Blocks), len(c.Ranking), c.Least)}
	case stats.AllEqual:
		return said{"equal", "Equal", fmt.Sprintf("In %s all are equal within %g\u00a0%%, by their joint intervals.", name, 100*c.Smallest)}
	case stats.Winner:
		return winner(m, name, row, c)
	}
	first := c.Groups[0]
	rest := slices.DeleteFunc(slices.Clone(c.Ranking), func(s string) bool { return slices.Contains(first, s) })
	if len(rest) == 0 {
		return said{"open", "No significant difference", fmt.Sprintf("In %s no two of %s differ significantly; %s.", name, listed(c.Ranking), joint(c))}
	}
	text := fmt.Sprintf("In %s %s are first, without a significant difference; behind: %s; %s.", name, listed(first), listed(rest), joint(c))
	if len(first) == 1 {
		text = fmt.Sprintf("In %s %s is first; behind: %s; %s.", name, first[0], listed(rest), joint(c))
	}
	return said{"open", "No winner", text}
}

// joint says within what bounds the differences lie that are not significant.
func joint(c stats.Verdict) string {
	low, high := 0.0, 0.0
	for _, p := range c.Pairs {
		if p.Finding == stats.Unclear {
			low, high = min(low, p.Joint.Low), max(high, p.Joint.High)
		}
	}
	return "the joint intervals of such pairs lie within " + percent(low) + " to " + percent(high)
}

func ofEach(n int) string {
	if n == 1 {
		return "one run of each"
	}
	return fmt.Sprintf("%d runs of each", n)
}

func winner(m report.Metric, name string, row report.Row, c stats.Verdict) said {
	word := "highest"
	if m.Lowest {
		word = "lowest"
	}
	text := fmt.Sprintf("%s has the %s %s", strings.ReplaceAll(c.Ranking[0], "=", " = "), word, name)
	for _, cell := range row.Cells {
		if cell.Name == c.Ranking[0] {
			text += ", " + stated(m, cell.Values[m.Key])
		}
	}
	if p, ok := c.Pair(0, 1); ok {
		text += fmt.Sprintf("; the next, %s, has %s (%s)", p.B, percent(p.Difference), span(p.Joint))
	}
	return said{"winner", "Winner: " + c.Ranking[0], text + "."}
}

// noAnswer says why nothing is compared.
func noAnswer(row report.Row) said {
	if competing(row) < 2 {
		return said{"none", "Nothing to compare", "Fewer than two competitors."}
	}
	out := append(notRanked(row, false), notRanked(row, true)...)
	if len(out) == 0 {
		out = []string{"fewer than two competitors are ranked"}
	}
	return said{"none", "Not measurable here", sentenceCase(strings.Join(out, "; ")) + "."}
}

// competing counts those that are compared if they are ranked.
func competing(row report.Row) (n int) {
	for _, c := range row.Cells {
		if !c.Yardstick() {
			n++
		}
	}
	return n
}

// notRanked says of whom what keeps them out of the ranking.
func notRanked(row report.Row, lossy bool) (parts []string) {
	for _, c := range row.Outs() {
		if (c.Kind == report.RequestsLost) != lossy {
			continue
		}
		whom := listed(c.Cells)
		if len(c.Cells) == competing(row) {
			whom = fmt.Sprintf("all %d", len(c.Cells))
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", c.Kind.Words(), whom))
	}
	return parts
}

// isBest reports whether the cell has won the comparison of a metric.
func isBest(row report.Row, key, name string) bool {
	c, ok := row.Comparisons[key]
	return ok && c.Outcome == stats.Winner && slices.Contains(strings.Split(c.Ranking[0], "="), name)
}
