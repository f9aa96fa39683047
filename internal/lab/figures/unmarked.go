// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kinds are the figures that are not measured and need no stored result.
var kinds = []string{
	"limits",    // of the code and the kernel: sizes, timeouts, defaults, bounds
	"targets",   // what a measurement is compared with
	"method",    // of measuring: durations, repeats, levels of confidence, simulations that a test makes
	"published", // others' figures, with their source
	"example",   // output that is printed to show its form
	"versions",  // of other programs and kernels
	"generated", // the whole page is made of stored results or of the code, and a test compares them
}

// units make a number a measurement, or a claim of one.
const units = `(?:%|times\b|us/connection\b|ms\b|us\b|µs\b|ns\b|s\b|min\b|[KMG]i?B\b(?:/s)?|[A-Za-z]+/s\b|instructions\b|percent\b)`

var (
	exemption = regexp.MustCompile(`<!-- figures: (.*?) -->`)
	heading   = regexp.MustCompile(`^(#+) `)
	codeSpan  = regexp.MustCompile("`[^`]*`")
	comment   = regexp.MustCompile(`(?s)<!--.*?-->`)
	linkTo    = regexp.MustCompile(`\]\([^)]*\)`)
	// measured finds numbers with a unit, several of which may share it; @
	// stands for one that is marked.
	measured = regexp.MustCompile(`(?:(?:` + number + `|@)(?:,| to| and| or| by)? )*(?:` + number + `|@)[ \x{a0}\x{202f}]?` + units)
	tableRow = regexp.MustCompile(`^\s*\|.*\|\s*$`)
	// cellFigure is a cell of a table that holds a figure and nothing else.
	cellFigure = regexp.MustCompile(`^(` + number + `)(?: \([^)]*\))?(?: ?[†‡§¶*]+)?$`)
	digit      = regexp.MustCompile(`\d`)
)

// unmarked lists what looks like a measurement and is neither marked nor
// exempt. An exemption on a line of its own holds up to the next heading that
// is not below the one before it; else it holds for its paragraph.
func unmarked(page string) (problems []Problem) {
	// Comments and blocks keep their lines, so that the numbers stay true.
	page = block.ReplaceAllStringFunc(page, func(b string) string { return strings.Repeat("\n", strings.Count(b, "\n")) })
	page = marked.ReplaceAllString(page, "@")
	level, exempt := 0, 0 // of the last heading; of that whose section is exempt, 0 for none
	fence := false
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fence = !fence
			continue
		}
		if fence {
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			level = len(m[1])
			if exempt > 0 && level <= exempt {
				exempt = 0
			}
			continue
		}
		if m := exemption.FindStringSubmatch(line); m != nil {
			if bad := badKind(m[1]); bad != "" {
				problems = append(problems, Problem{Line: i + 1, Text: bad})
			}
			if strings.TrimSpace(line) == m[0] {
				exempt = max(1, level)
				continue
			}
		}
		if exempt > 0 || strings.TrimSpace(line) == "" {
			continue
		}
		first := i
		paragraph := line
		for i+1 < len(lines) && continues(lines[i+1]) {
			i++
			paragraph += "\n" + lines[i]
		}
		if m := exemption.FindStringSubmatch(paragraph); m != nil {
			if bad := badKind(m[1]); bad != "" && i > first {
				problems = append(problems, Problem{Line: first + 1, Text: bad})
			}
			continue
		}
		problems = append(problems, claims(paragraph, first+1)...)
	}
	return problems
}

// continues reports whether a line belongs to the paragraph before it.
func continues(line string) bool {
	t := strings.TrimSpace(line)
	return t != "" && !strings.HasPrefix(t, "```") && !heading.MatchString(line)
}

func badKind(list string) string {
	for _, kind := range strings.Split(list, ",") {
		if !slices.Contains(kinds, strings.TrimSpace(kind)) {
			return fmt.Sprintf("figures of kind %q: want some of %s", strings.TrimSpace(kind), strings.Join(kinds, ", "))
		}
	}
	return ""
}

// claims are the unmarked figures of a paragraph that begins at a line.
func claims(paragraph string, first int) (problems []Problem) {
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	text := comment.ReplaceAllStringFunc(paragraph, blank)
	text = linkTo.ReplaceAllString(text, "]")
	for i, line := range strings.Split(text, "\n") {
		if !tableRow.MatchString(line) {
			continue
		}
		for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")[1:] { // the first is a label
			if cell = strings.TrimSpace(cell); cellFigure.MatchString(cell) {
				problems = append(problems, Problem{first + i, fmt.Sprintf("%q in a table is not traced to a result", cell), true})
			}
		}
	}
	text = codeSpan.ReplaceAllStringFunc(text, blank)
	flat := strings.ReplaceAll(text, "\n", " ") // of the same length
	for _, at := range measured.FindAllStringIndex(flat, -1) {
		if found := flat[at[0]:at[1]]; digit.MatchString(found) {
			problems = append(problems, Problem{first + strings.Count(text[:at[0]], "\n"), fmt.Sprintf("%q is not traced to a result", found), true})
		}
	}
	return problems
}
