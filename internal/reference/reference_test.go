// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"imbang/internal/director"
	"imbang/internal/lab/study"
	"imbang/internal/model"
)

const dir = "../../docs/reference"

// The pages are what the code makes, and no generated page is left over.
func TestPagesAreOfTheCode(t *testing.T) {
	made := map[string]bool{}
	for _, p := range Pages() {
		made[filepath.Join(dir, p.Path)] = true
		text, err := os.ReadFile(filepath.Join(dir, p.Path))
		if err != nil {
			t.Error(err)
		} else if string(text) != p.Text {
			t.Errorf("docs/reference/%s is not what the code makes: make reference", p.Path)
		}
	}
	if len(made) < 30 {
		t.Errorf("only %d pages", len(made))
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || made[path] {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && IsGenerated(string(text)) {
			t.Errorf("%s is not made any more: make reference", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every reason and every key is described, and nothing else.
func TestDescriptionsAreComplete(t *testing.T) {
	of := map[string]bool{}
	for _, r := range director.Reasons() {
		name := r.Verdict + " " + r.Reason
		of[name] = true
		if reasons[name] == "" {
			t.Errorf("%s has no description", name)
		}
	}
	for r := range reasons {
		if !of[r] {
			t.Errorf("%s is no reason", r)
		}
	}
	for _, s := range model.Schedulers() {
		if rules[s.Name] == "" {
			t.Errorf("scheduler %s has no rule", s.Name)
		}
	}
	if len(rules) != len(model.Schedulers()) {
		t.Errorf("%d rules for %d schedulers", len(rules), len(model.Schedulers()))
	}
	known := map[string]bool{}
	for _, k := range study.Keys() {
		known[k.Path] = true
		if keys[k.Path] == "" {
			t.Errorf("key %s has no description", k.Path)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !known[k] {
			t.Errorf("%s is no key of a study", k)
		}
	}
}

// No page is empty, and every flag, setting and command is on its page.
func TestPagesSayWhatTheyAreAbout(t *testing.T) {
	text := map[string]string{}
	for _, p := range Pages() {
		text[p.Path] = p.Text
		if !IsGenerated(p.Text) || strings.Count(p.Text, "\n") < 6 {
			t.Errorf("%s: %q", p.Path, p.Text)
		}
	}
	for path, want := range map[string]string{
		"imbang/attach.md":         "`--client-dev string`",
		"imbang-lab/bench-path.md": "# imbang-lab bench path",
		"settings.md":              "| `conn_reuse_mode` | 1 |",
		"reasons.md":               "| dropped | `table full` |",
		"audit.md":                 "| `unreached` |",
		"ipvsadm.md":               "`mh-fallback`, `mh-port`",
		"study.md":                 "| `cluster.servers[].speed` | number |",
		"configuration.md":         "| `services[].forward` | `masquerading`, `direct-routing`, `tunnel` |",
		"imbang.md":                "[`imbang attach`](imbang/attach.md)",
	} {
		if !strings.Contains(text[path], want) {
			t.Errorf("%s does not have %q", path, want)
		}
	}
}

// The example of the page about studies is a study.
func TestExampleStudyIsValid(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/add-a-study.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	s, err := study.Parse("mine.yaml", []byte(text), nil)
	if err != nil || len(s.Servers) != 3 {
		t.Fatalf("%v\n%s", err, text)
	}
}
