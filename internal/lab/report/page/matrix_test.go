// SPDX-License-Identifier: Apache-2.0

package page

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/record"
)

// visible is the text of the page, drawings and tooltips included, without
// markup, scripts and commands. Elements are separated by "|".
func visible(page string) string {
	for _, tag := range []string{"script", "style", "pre", "code"} {
		page = regexp.MustCompile(`(?s)<`+tag+`[ >].*?</`+tag+`>`).ReplaceAllString(page, "")
	}
	for _, m := range regexp.MustCompile(`\s(?:title|aria-label)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		page += "|" + m[1]
	}
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "|"))
}

var (
	broken = regexp.MustCompile(`.{0,30}\d (?:%|[mµu]?s|[KM]B|GiB|Mbit|(?:[KM]B|conn|connections|requests|replies)/s)(?:[\s.,;:)/|]|$)`)
	hyphen = regexp.MustCompile(`.{0,30}[\s(|\x{a0}]-\d.{0,10}`)
)

// A figure and its unit stay on one line, and a negative number has U+2212, in
// the text, the drawings and the tooltips alike.
func TestFiguresAreNotBroken(t *testing.T) {
	run := fixed(t, "Some", 6)
	_, page := rendered(t, run)
	text := visible(page)
	if !strings.Contains(text, "\u00a0%") || !strings.Contains(text, "\u00a0ms") {
		t.Fatal("the page has no figures to check")
	}
	for _, m := range broken.FindAllString(text, -1) {
		t.Errorf("breakable figure: %q", m)
	}
	for _, m := range hyphen.FindAllString(text, -1) {
		t.Errorf("hyphen as minus sign: %q", m)
	}
}

// The study's own words are set like those of the report.
func TestWordsOfTheStudyAreNotBroken(t *testing.T) {
	run := fixed(t, "Changes of -3 % within 5 ms", 6)
	run.Environment.CPU = "some CPU of 3 MB"
	run.Environment.Limits = map[string]string{"delay": "at most 2 ms"}
	_, page := rendered(t, run)
	if !strings.Contains(visible(page), "Changes of −3\u00a0% within 5\u00a0ms") {
		t.Error("the title is not set")
	}
	for _, m := range append(broken.FindAllString(visible(page), -1), hyphen.FindAllString(visible(page), -1)...) {
		t.Errorf("not set: %q", m)
	}
}

// The caption names the level that the intervals have: so few runs permit no
// 95 %.
func TestMatrixNamesTheLevelOfItsIntervals(t *testing.T) {
	for runs, want := range map[int]string{3: "75\u00a0%", 5: "93.7\u00a0%", 6: "96.8\u00a0%"} {
		run := fixed(t, "Some", 6)
		run.Environment.Plan.Repeats = runs
		run.Samples = slices.DeleteFunc(run.Samples, func(s record.Sample) bool { return s.Block > runs })
		rep, page := rendered(t, run)
		for _, x := range matrices(rep) {
			if x.Level != want {
				t.Errorf("%d runs: %s: level %q, want %q", runs, x.Title, x.Level, want)
			}
		}
		if len(matrices(rep)) == 0 {
			t.Errorf("%d runs: no matrix", runs)
		}
		if !strings.Contains(visible(page), "confidence intervals of at least "+want) {
			t.Errorf("%d runs: the caption does not say %s", runs, want)
		}
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

// The head names the commit of the build that was measured, and that it was
// modified.
func TestHeadNamesTheCommit(t *testing.T) {
	run := fixed(t, "Some", 6)
	run.Environment.Builds = map[string]record.Build{"imbang": {Commit: "0123456789abcdef0123456789abcdef01234567", Modified: true}}
	_, page := rendered(t, run)
	head, _, _ := strings.Cut(page, "</header>")
	if !strings.Contains(visible(head), "imbang test, commit 0123456789ab, modified") {
		t.Errorf("no commit in the head: %q", visible(head))
	}
}
