// SPDX-License-Identifier: Apache-2.0

// Package figures traces the figures of README.md and docs/ to stored results:
// the history of the benchmarks, other files of results, and the archived runs
// of the studies.
//
// A page marks a measured figure by a comment directly behind it, which
// browsers do not show and which names the result:
//
//	costs 0.40<!-- = bench=flood in=costs competitor=imbang-tc traffic=one figure="over plain" --> times
//
// and a table or verdict by comments around it:
//
//	<!-- begin study=thesis show=verdict -->
//	<!-- end -->
//
// Fill writes what the results say into the marked places, with as many
// decimals as the page has there. What looks like a measurement and is not
// marked is a problem, unless the page says of what kind it is instead:
//
//	<!-- figures: limits -->
package figures

import (
	"fmt"
	"regexp"
	"strings"
)

// Problem is a place of a page that cannot be traced.
type Problem struct {
	Line int
	Text string
	// Unmarked reports a figure that no comment marks, in contrast to a mark
	// that names no result.
	Unmarked bool
}

func (p Problem) String() string { return fmt.Sprintf("%d: %s", p.Line, p.Text) }

// number is a figure as prose has it: 0.97, -31.8, 210 000.
const number = `[+\-\x{2212}]?(?:\d{1,3}(?: \d{3})+|\d+)(?:\.\d+)?`

var (
	marked = regexp.MustCompile(`(` + number + `)<!-- = (.*?) -->`)
	mark   = regexp.MustCompile(`<!-- = `)
	block  = regexp.MustCompile(`(?s)(<!-- begin (.*?) -->\n)(.*?)(<!-- end -->)`)
	begin  = regexp.MustCompile(`<!-- begin `)
)

// Fill returns a page with what the store says in its marked places, and the
// problems of the page.
func Fill(page string, s *Store) (string, []Problem) {
	var problems []Problem
	replace := func(re *regexp.Regexp, text string, with func(groups []string) (string, error)) string {
		var out strings.Builder
		last := 0
		for _, at := range re.FindAllStringSubmatchIndex(text, -1) {
			var groups []string
			for i := 0; i < len(at); i += 2 {
				groups = append(groups, text[at[i]:at[i+1]])
			}
			now, err := with(groups)
			if err != nil {
				problems = append(problems, Problem{Line: lineOf(text, at[0]), Text: err.Error()})
				now = groups[0]
			}
			out.WriteString(text[last:at[0]] + now)
			last = at[1]
		}
		return out.String() + text[last:]
	}
	if a, b := len(begin.FindAllString(page, -1)), len(block.FindAllString(page, -1)); a != b {
		problems = append(problems, Problem{Line: 1, Text: fmt.Sprintf("%d comments begin a block and %d of them end", a, b)})
	}
	page = replace(block, page, func(g []string) (string, error) {
		text, err := s.block(g[2])
		return g[1] + text + g[4], err
	})
	if a, b := len(mark.FindAllString(page, -1)), len(marked.FindAllString(page, -1)); a != b {
		problems = append(problems, Problem{Line: 1, Text: fmt.Sprintf("%d comments mark a figure and %d of them stand directly behind one", a, b)})
	}
	page = replace(marked, page, func(g []string) (string, error) {
		v, err := s.figure(g[2])
		return like(g[1], v) + strings.TrimPrefix(g[0], g[1]), err
	})
	return page, append(problems, unmarked(page)...)
}

func lineOf(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }

// like writes a value as a page wrote another: with its decimals, its sign and
// its groups of digits.
func like(old string, v float64) string {
	whole, fraction, _ := strings.Cut(old, ".")
	text := fmt.Sprintf("%.*f", len(fraction), v)
	text, negative := strings.CutPrefix(text, "-")
	if strings.Contains(whole, " ") {
		text = grouped(text)
	}
	switch {
	case negative && strings.Trim(text, "0. ") != "":
		return "-" + text
	case strings.HasPrefix(old, "+"):
		return "+" + text
	}
	return text
}

// grouped separates thousands by spaces.
func grouped(text string) string {
	whole, fraction, point := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	if point {
		whole += "." + fraction
	}
	return whole
}
