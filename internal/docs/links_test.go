// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documentation as a whole: every relative link and anchor
// resolves, the contents name every page, and pages stay short.
package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var (
	link    = regexp.MustCompile(`!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#{1,6} +(.*?) *$`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
	span    = regexp.MustCompile("`[^`\n]*`")
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	target  = regexp.MustCompile(`\]\([^)]*\)`)
)

// pages are README.md, ARCHITECTURE.md and those of docs/.
func pages(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md", "ARCHITECTURE.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			name, _ := filepath.Rel(root, path)
			list = append(list, name)
		}
		return err
	})
	if err != nil || len(list) < 10 {
		t.Fatalf("%d pages, %v", len(list), err)
	}
	return list
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// prose is a page without code blocks; its lines keep their numbers.
func prose(text string) []string {
	lines, fence := strings.Split(text, "\n"), false
	for i, l := range lines {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fence = !fence
			lines[i] = ""
		} else if fence {
			lines[i] = ""
		}
	}
	return lines
}

// anchors are the names of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, l := range prose(text) {
		m := heading.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		name := target.ReplaceAllString(comment.ReplaceAllString(m[1], ""), "]")
		name = strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(name)), ""), " ", "-")
		for unique, n := name, 1; ; n++ {
			if !all[unique] {
				all[unique] = true
				break
			}
			unique = name + "-" + string(rune('0'+n))
		}
	}
	return all
}

// links are the relative links of a page, with their lines.
func links(text string) (all []string, lines []int) {
	for i, l := range prose(text) {
		for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(l, "code"), -1) {
			if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") {
				all, lines = append(all, m[1]), append(lines, i+1)
			}
		}
	}
	return all, lines
}

// broken says what is wrong with a link of a page; "" if nothing.
func broken(page, to string, read func(string) (string, error)) string {
	path, anchor, _ := strings.Cut(to, "#")
	file := page
	if path != "" {
		file = filepath.Join(filepath.Dir(page), path)
	}
	text, err := read(file)
	if err != nil {
		return err.Error()
	}
	if anchor != "" && !anchors(text)[anchor] {
		return file + " has no heading " + anchor
	}
	return ""
}

// archive has the stored runs of the studies; it is absent until the first ones are
// published (make publish-studies).
const archive = "docs/studies"

func fromTree(name string) (string, error) {
	path := filepath.Join(root, name)
	info, err := os.Stat(path)
	if name == archive && errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || info.IsDir() {
		return "", err
	}
	text, err := os.ReadFile(path)
	return string(text), err
}

func TestLinksResolve(t *testing.T) {
	n := 0
	for _, page := range pages(t) {
		all, lines := links(read(t, page))
		n += len(all)
		for i, to := range all {
			if why := broken(page, to, fromTree); why != "" {
				t.Errorf("%s:%d: %s: %s", page, lines[i], to, why)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d links were found", n)
	}
}

// Broken links are found.
func TestBrokenLinksAreFound(t *testing.T) {
	tree := map[string]string{"a.md": "# A b's `c`\n```\n# no\n```\n## A\n## A\n", "d/b.md": "x"}
	read := func(name string) (string, error) {
		if text, ok := tree[name]; ok {
			return text, nil
		}
		return "", fs.ErrNotExist
	}
	for to, ok := range map[string]bool{
		"#a-bs-c": true, "#a": true, "#a-1": true, "#no": false, "d/b.md": true, "d/c.md": false, "d/b.md#x": false,
	} {
		if why := broken("a.md", to, read); (why == "") != ok {
			t.Errorf("%s: %q", to, why)
		}
	}
	all, _ := links("[a](b.md) `[c](d.md)` [`e`](f.md#g)\n```\n[h](i.md)\n```\n![j](k.svg) [l](https://m)\n")
	if want := []string{"b.md", "f.md#g", "k.svg"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

// The contents lead to every page: directly, or for the generated pages of
// commands through the page of their program or that of JSON output.
func TestContentsAreComplete(t *testing.T) {
	listed := map[string]bool{"README.md": true, "ARCHITECTURE.md": true, "docs/README.md": true}
	for _, page := range []string{"docs/README.md", "docs/reference/imbang.md", "docs/reference/imbang-lab.md", "docs/reference/json.md"} {
		all, _ := links(read(t, page))
		for _, to := range all {
			path, _, _ := strings.Cut(to, "#")
			listed[filepath.Join(filepath.Dir(page), path)] = true
		}
	}
	for _, page := range pages(t) {
		if !listed[page] {
			t.Errorf("docs/README.md does not lead to %s", page)
		}
	}
}

// mostLines is how long a page may be, without blocks that are made of results. The
// page of the benchmarks is made of their results and has a section for each.
const mostLines = 200

var made = regexp.MustCompile(`(?s)<!-- begin .*?<!-- end -->\n`)

func TestPagesAreShort(t *testing.T) {
	for _, page := range pages(t) {
		if page == "ARCHITECTURE.md" || page == "docs/performance.md" {
			continue
		}
		if n := strings.Count(made.ReplaceAllString(read(t, page), ""), "\n"); n > mostLines {
			t.Errorf("%s has %d lines, at most %d", page, n, mostLines)
		}
	}
}
