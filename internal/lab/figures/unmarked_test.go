// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"strings"
	"testing"
)

// found are the lines and texts of what a page does not trace.
func found(page string) string {
	var parts []string
	for _, p := range unmarked(page) {
		what, _, _ := strings.Cut(p.Text, " is not traced")
		parts = append(parts, fmt.Sprintf("%d %s", p.Line, strings.TrimSuffix(what, " in a table")))
	}
	return strings.Join(parts, "; ")
}

func TestUnmarkedFigures(t *testing.T) {
	const m = "<!-- = bench=x -->"
	for _, c := range []struct{ page, want string }{
		{"It takes 0.40 times as long.", `1 "0.40 times"`},
		{"It takes 0.40" + m + " times as long.", ""},
		{"From 0.86 to 0.90 times, 3 % and\n12 us/connection.", `1 "0.86 to 0.90 times"; 1 "3 %"; 2 "12 us/connection"`},
		{"From 0.86" + m + " to 0.90 times.", `1 "@ to 0.90 times"`},
		{"From 0.86" + m + " to 0.90" + m + " times.", ""},
		{"At 10 000 connections/s and -31.8 % on\nLinux 6.1 with 3 servers on port 80, 2026-11-22.", `1 "10 000 connections/s"; 1 "-31.8 %"`},
		{"A number and its unit on two lines: 5\nms.", `1 "5 ms"`},
		{"Run `sleep 5 s` and\n```\n5 s\n```\nsee [it](x-5%).", ""},
		{"| a | b |\n| --- | --- |\n| 5 servers | 3915 † |\n| 2000 | 12.5 (3 to 4) |", `3 "3915 †"; 4 "12.5 (3 to 4)"`},
		{"| a | b |\n| --- | --- |\n| x | 12.5" + m + " |", ""},
		{"<!-- begin study=x show=table -->\n| x | 7 ms |\n<!-- end -->\nthen 7 ms", `4 "7 ms"`},
		// Exemptions: of a paragraph, of a section, of a page.
		{"At most 5 s. <!-- figures: limits -->\nAnd 6 s.\n\nBut 7 s.", `4 "7 s"`},
		{"# T\n\n## A\n<!-- figures: limits, method -->\n5 s\n\n### B\n6 s\n## C\n7 s", `10 "7 s"`},
		{"# T\n<!-- figures: generated -->\n## A\n5 s\n## B\n6 s", ""},
		{"5 s <!-- figures: obvious -->", `1 figures of kind "obvious": want some of ` + strings.Join(kinds, ", ")},
		{"# T\n<!-- figures: obvious -->", `2 figures of kind "obvious": want some of ` + strings.Join(kinds, ", ")},
	} {
		if got := found(c.page); got != c.want {
			t.Errorf("%q\n got %s\nwant %s", c.page, got, c.want)
		}
	}
}

func TestFiguresKeepTheirForm(t *testing.T) {
	for _, c := range []struct {
		old  string
		v    float64
		want string
	}{
		{"0.97", 1.2345, "1.23"}, {"5", 1234.5, "1234"}, {"1 000", 1234567, "1 234 567"}, {"1 000.0", 1234.56, "1 234.6"},
		{"+3", 4, "+4"}, {"+3", -4, "-4"}, {"3", -0.2, "0"}, {"-3.0", 2, "2.0"}, {"100 000", 999, "999"},
	} {
		if got := like(c.old, c.v); got != c.want {
			t.Errorf("%s for %g: got %s, want %s", c.old, c.v, got, c.want)
		}
	}
}
