// SPDX-License-Identifier: Apache-2.0

// Package reference makes the generated pages of docs/reference from the code:
// the commands of both programs, their JSON output, exit statuses, environment
// variables, files and BPF maps, the settings, the reasons for which packets are
// not forwarded, the kinds of audit findings, the options of ipvsadm and the keys
// of a study. A test compares the pages with what it makes. It imports the
// director and the lab and is linked into neither program.
package reference

import (
	"fmt"
	"slices"
	"strings"
)

//go:generate go run ./write ../../docs/reference

// Page is a page below docs/reference.
type Page struct{ Path, Text string }

// Pages are all generated pages, by path.
func Pages() []Page {
	pages := append(commandPages(), settingsPage(), reasonsPage(), auditPage(), ipvsadmPage(), studyPage(),
		jsonPage(), environmentPage(), filesPage(), reloadsPage())
	pages = append(pages, configurationPages()...)
	slices.SortFunc(pages, func(a, b Page) int { return strings.Compare(a.Path, b.Path) })
	return pages
}

// title begins a page. Figures of generated pages are those of the code.
func title(text, of string) string {
	return fmt.Sprintf("# %s\n\n<!-- figures: generated -->\n<!-- Generated from %s by `make reference`. -->\n\n", text, of)
}

// table is a Markdown table; a cell may hold anything but line breaks.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + strings.NewReplacer("|", `\|`, "\n", " ").Replace(c) + " ")
		}
		b.WriteString("|\n")
	}
	line(head)
	line(slices.Repeat([]string{"---"}, len(head)))
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

func code(text string) string { return "`" + text + "`" }

// IsGenerated reports whether a page says that this package made it.
func IsGenerated(page string) bool {
	return strings.Contains(page, "<!-- Generated from ") && strings.Contains(page, "by `make reference`. -->")
}
