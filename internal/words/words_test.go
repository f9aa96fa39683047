// SPDX-License-Identifier: Apache-2.0

// Package words holds a test of the vocabulary of everything that a person reads
// here: one thing has one name, that of its field.
package words

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrases are what is not written, with what is written instead. They are found
// in any case, and over the ends of lines.
var phrases = map[string]string{
	"appointment":             "timer entry",
	"appointments":            "timer entries",
	"journey":                 "route",
	"unfinished checksum":     "partial checksum",
	"unfinished checksums":    "partial checksums",
	"whims":                   "random seed",
	"whim":                    "random seed",
	"law of arrivals":         "distribution of arrivals",
	"law of service times":    "distribution of service times",
	"passed by the director":  "passed to the stack",
	"shall be":                "target",
	"by turns":                "interleaved",
	"told apart":              "significantly different",
	"tell apart":              "distinguish",
	"tells apart":             "distinguishes",
	"not apart":               "no significant difference",
	"moods":                   "drift",
	"mood":                    "drift",
	"in vain":                 "without a reply",
	"as hoped":                "as expected",
	"sees to it":              "handles",
	"should it be that":       "if",
	"refuses to lie":          "",
	"nobody gets in":          "",
	"it hurts":                "",
	"better lost than":        "drop the packet rather than leak the entry",
	"a packet that is none":   "",
	"they want debian":        "requires Debian",
	"moods meet":              "drift affects",
	"before it is sure":       "no side effects until every check has passed",
	"is not its own":          "checks the host's settings",
	"has no figure, not 0":    "metrics that a tool does not report are left blank",
	"best is who":             "a winner differs significantly from every competitor",
	"there for ever":          "drop the packet rather than leak the entry",
	"what takes commands":     "parsers of commands",
	"none is at":              "no winner at",
	"is asked for in vain":    "",
	"no more than chance":     "not significant",
	"does not prove them":     "the joint intervals",
	"what is to be said of":   "",
	"nothing is hidden":       "",
	"cannot be told":          "no significant difference",
	"its way through the lab": "",
}

// unread are files that are not prose of this project: recordings, results, and
// this test.
var unread = regexp.MustCompile(`(^|/)(testdata|vendor)/|\.(o|png|svg|jsonl|json|sum|gz)$|^internal/words/|^LICENSE|_bpfe[lb]\.go$`)

// marks are what begins a line of a comment or a list.
var marks = regexp.MustCompile(`(?m)^\s*(//|#|\*|/\*|--|>|- )?\s*`)

func TestVocabulary(t *testing.T) {
	root := filepath.Join("..", "..")
	out, err := exec.Command("git", "-C", root, "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Fields(string(out))
	if len(files) < 500 {
		t.Fatalf("git names %d files", len(files))
	}
	for _, name := range files {
		if unread.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range find(string(text)) {
			t.Errorf("%s: %q; write %q", name, f, phrases[f])
		}
	}
}

// find lists the phrases of a text, in order.
func find(text string) (found []string) {
	plain := " " + strings.ToLower(strings.Join(strings.Fields(marks.ReplaceAllString(text, " ")), " ")) + " "
	for p := range phrases {
		if regexp.MustCompile(`\b` + regexp.QuoteMeta(p) + `\b`).MatchString(plain) {
			found = append(found, p)
		}
	}
	slices.Sort(found)
	return found
}

func TestPhrasesAreFoundOverLines(t *testing.T) {
	for text, want := range map[string]bool{
		"// each is measured by\n// turns with the others": true,
		"Nobody asks In Vain.":                             true,
		"# the figures shall\n# be 3":                      true,
		"by turnstile":                                     false,
		"interleaved, and significantly so":                false,
	} {
		if got := len(find(text)) > 0; got != want {
			t.Errorf("%q: found %v, want %v", text, got, want)
		}
	}
}
