// SPDX-License-Identifier: Apache-2.0

package page

import (
	"html"
	"regexp"
	"strings"
	"testing"
)

// text of the page without markup, scripts and what stands as it was typed.
func visible(page string) string {
	for _, tag := range []string{"script", "style", "pre", "code", "svg"} {
		page = regexp.MustCompile(`(?s)<`+tag+`[ >].*?</`+tag+`>`).ReplaceAllString(page, "")
	}
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " "))
}

// A figure is not broken over lines, and there is one minus sign.
func TestFiguresAreNotBroken(t *testing.T) {
	_, page := rendered(t, fixed(t, "Some", 6))
	text := visible(page)
	if m := regexp.MustCompile(`\d (%|ms|KB/s)`).FindAllString(text, -1); len(m) > 0 {
		t.Errorf("breakable figures: %q", m)
	}
	if m := regexp.MustCompile(`.{20}[\s(]-\d.{10}`).FindAllString(text, -1); len(m) > 0 {
		t.Errorf("hyphens as minus signs: %q", m)
	}
}

// The matrix has every condition and competitor, marks the winner, and says of
// each cell that is not ranked why.
func TestMatrix(t *testing.T) {
	rep, page := rendered(t, fixed(t, "Some", 6))
	list := matrices(rep)
	if len(list) == 0 || len(list) > mostMatrices {
		t.Fatalf("%d matrices", len(list))
	}
	won := 0
	for _, x := range list {
		if len(x.Rows) != len(rep.Sections[0].Rows) || len(x.Columns) != len(rep.Sections[0].Columns) {
			t.Errorf("%s: %d rows of %d columns", x.Title, len(x.Rows), len(x.Columns))
		}
		for _, r := range x.Rows {
			for i, c := range r.Cells {
				if c.Mark == markOut && !strings.HasPrefix(c.Why, "not ranked") {
					t.Errorf("%s at %s: %+v", x.Columns[i], r.Condition, c)
				}
				if c.Mark == markWinner {
					won++
				}
			}
		}
	}
	if won == 0 || !strings.Contains(page, `class="won"`) {
		t.Error("no winner is marked")
	}
	if at, first := strings.Index(page, `class="matrix"`), strings.Index(page, `class="verdicts"`); at < 0 || at > first {
		t.Errorf("the matrix is at %d, the verdicts on levels at %d", at, first)
	}
}
