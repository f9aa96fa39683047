// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"imbang/internal/lab/record"
	"imbang/studies"
)

const root = "../../.."

// madeElsewhere reports whether another test compares a page with what it is made
// of: the performance page in package history, the commands' in package reference.
func madeElsewhere(page string) bool {
	return page == "docs/performance.md" || strings.HasPrefix(page, "docs/reference/imbang/") ||
		strings.HasPrefix(page, "docs/reference/imbang-lab/")
}

// pages are README.md and those of docs/.
func pages(t *testing.T) (list []string) {
	t.Helper()
	list = []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			name, _ := filepath.Rel(root, path)
			list = append(list, name)
		}
		return err
	})
	if err != nil || len(list) < 5 {
		t.Fatalf("%d pages, %v", len(list), err)
	}
	return list
}

// Every figure of README.md and docs/ is that of a stored result, or says why
// there is none.
func TestPagesAreOfStoredResults(t *testing.T) {
	s := Open(root)
	for _, name := range pages(t) {
		if madeElsewhere(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		page, problems := Fill(string(text), s)
		if page != string(text) {
			t.Errorf("%s is not of the stored results: make figures\n%s", name, firstChange(string(text), page))
		}
		for _, p := range problems {
			t.Errorf("%s:%s", name, p)
		}
	}
}

func firstChange(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return "page:    " + x[i] + "\nresults: " + y[i]
		}
	}
	return "one is longer"
}

// mostBytes is the room for all archived runs.
const mostBytes = 16 << 20

// published are the studies with a stored run, in the order of their names.
var published = []string{"l7-engines", "layer7-vs-layer4", "nginx-upstreams", "rr-vs-lc", "single-vs-cluster", "thesis"}

// Each study has a run, whose raw samples can be reported on, which is no short
// look, and whose programs are of known commits without other changes.
func TestStoredStudies(t *testing.T) {
	var there []string
	entries, err := os.ReadDir(filepath.Join(root, StudiesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		there = append(there, e.Name())
	}
	if !slices.Equal(there, published) {
		t.Errorf("runs of %v are stored, and those of %v are published", there, published)
	}
	s := Open(root)
	var size int64
	for _, name := range there {
		one, err := s.study(name)
		if err != nil {
			t.Error(err)
			continue
		}
		e := one.run.Environment
		if e.Plan.Quick || len(one.run.Samples) == 0 {
			t.Errorf("%s: %d samples, quick: %v", name, len(one.run.Samples), e.Plan.Quick)
		}
		for _, program := range []string{"imbang", "imbang-lab"} {
			if b := e.Builds[program]; len(b.Commit) != 40 || b.Modified {
				t.Errorf("%s: %s is of commit %q, modified: %v", name, program, b.Commit, b.Modified)
			}
		}
		if text, ok := studies.Read(name); !ok || withoutPublished(e.StudyText) != withoutPublished(string(text)) {
			t.Errorf("%s: the run is of another text of the study: run it again", name)
		}
		info, err := os.Stat(filepath.Join(root, StudiesDir, name, record.ArchivedFile))
		if err != nil {
			t.Error(err)
			continue
		}
		size += info.Size()
	}
	if size > mostBytes {
		t.Errorf("%d bytes of samples, at most %d", size, mostBytes)
	}
}

// withoutPublished is what of a study decides about a run: neither comments nor
// the published figures.
func withoutPublished(text string) string {
	text, _, _ = strings.Cut(text, "\npublished:")
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		if code, _, _ := strings.Cut(line, "#"); strings.TrimSpace(code) != "" {
			lines = append(lines, strings.TrimRight(code, " "))
		}
	}
	return strings.Join(lines, "\n")
}
