// SPDX-License-Identifier: Apache-2.0

// Package words holds a test of the vocabulary of everything that a person reads
// here: one thing has one name, that of its field.
package words

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// phrases are regular expressions of what is not written, with what is written
// instead. They are found in any case, and over the ends of lines.
var phrases = map[string]string{
	"appointment":                 "timer entry",
	"appointments":                "timers",
	"journey":                     "route",
	"unfinished checksum":         "partial checksum",
	"unfinished checksums":        "partial checksums",
	"whims":                       "random seed",
	"whim":                        "random seed",
	"law of arrivals":             "distribution of arrivals",
	"law of service times":        "distribution of service times",
	"passed by the director":      "passed to the stack",
	"shall be":                    "target",
	"by turns":                    "interleaved",
	"told apart":                  "significantly different",
	"tell apart":                  "distinguish",
	"tells apart":                 "distinguishes",
	"not apart":                   "no significant difference",
	"moods":                       "drift",
	"mood":                        "drift",
	"in vain":                     "without a reply",
	"as hoped":                    "as expected",
	"sees to it":                  "handles",
	"should it be that":           "if",
	"refuses to lie":              "",
	"nobody gets in":              "",
	"it hurts":                    "",
	"better lost than":            "drop the packet rather than leak the entry",
	"a packet that is none":       "",
	"they want debian":            "requires Debian",
	"moods meet":                  "drift affects",
	"before it is sure":           "no side effects until every check has passed",
	"is not its own":              "checks the host's settings",
	"has no figure, not 0":        "metrics that a tool does not report are left blank",
	"best is who":                 "a winner differs significantly from every competitor",
	"there for ever":              "drop the packet rather than leak the entry",
	"what takes commands":         "parsers of commands",
	"none is at":                  "no winner at",
	"is asked for in vain":        "",
	"no more than chance":         "not significant",
	"does not prove them":         "the joint intervals",
	"what is to be said of":       "",
	"nothing is hidden":           "",
	"cannot be told":              "no significant difference",
	"its way through the lab":     "",
	"none is at 1000/s":           "no winner at 1000/s",
	"allow to be said":            "verdicts",
	"play a study":                "simulate a study",
	"a short look":                "short samples",
	"not to be believed":          "not a result",
	"has its luck":                "differs",
	"whoever":                     "the user, the process, or what it is",
	"before anything":             "before, and before what",
	"mend":                        "repair",
	"mends":                       "repairs",
	"no chance":                   "significant",
	"is chance":                   "not significant",
	"all chance":                  "random seed",
	"(left|leaves?) to chance":    "random",
	"says nothing of chance":      "has no confidence interval",
	"tells? ([a-z']+ ){1,6}apart": "distinguishes, identifies",
	"(kind|reason|engine|number|port|histogram|persistence engine) that is none": "unknown, invalid",
}

// identifiers are names that are not given, with those that are; in Go and C.
var identifiers = map[string]string{
	`\w*[Aa]ppointments?\w*`: "timerEntry",
	`\w*[Jj]ourney\w*`:       "route",
	`[Ww]hims?|\w*Whims?\w*`: "seed",
	`Law|\w+Law|parseLaw`:    "distribution",
	`[Mm]end|\w*Mend[A-Z]?`:  "repair",
	`[Mm]oods?|\w*Moods?`:    "drift",
	`\w*[Uu]nfinishedSum\w*`: "partial checksum",
}

// commentPhrases are not written in comments of the data plane and of imbang. They are
// found as phrases are.
var commentPhrases = map[string]string{
	"nobody('s)?":      "what is not there: no server, no other program, not in use",
	"(some|every)body": "the user, the process, or what it is",
	"wants?( (an?|the|to|all|no|another|more|it|of|keys))": "requires, expects, selects, needs",
	"besides":          "also, in addition to",
	"whom":             "the server, the client, or what it is",
	"hears? of":        "gets, reports",
	"take(s|n)? amiss": "rejects",
}

// commented are the files whose comments are examined for those.
var commented = regexp.MustCompile(`^(bpf/.*\.[ch]|internal/(director|cli)/.*\.go)$`)

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
		found := find(phrasePatterns, string(text))
		if commented.MatchString(name) {
			found = append(found, find(commentPatterns, comments(string(text)))...)
		}
		for _, f := range found {
			t.Errorf("%s:%d: %q; write %q", name, f.line, f.phrase, f.instead)
		}
		if source.MatchString(name) {
			for _, f := range findNames(string(text)) {
				t.Errorf("%s:%d: the name %q; write %q", name, f.line, f.phrase, f.instead)
			}
		}
	}
}

// source are the files whose identifiers are examined.
var source = regexp.MustCompile(`\.(go|[ch])$`)

// finding is a phrase or a name at a line, counted from 1.
type finding struct {
	phrase, instead string
	line            int
}

// pattern is an expression, and what to write instead.
type pattern struct {
	*regexp.Regexp
	instead string
	prefix  string // in lower case, of each text that it finds; "" if these begin in several ways
}

// compile makes one expression of each, that is found as whole words only.
func compile(list map[string]string, flags string) (compiled []pattern) {
	for expression, instead := range list {
		prefix, _ := regexp.MustCompile(expression).LiteralPrefix()
		compiled = append(compiled, pattern{regexp.MustCompile(flags + `\b(?:` + expression + `)\b`), instead, strings.ToLower(prefix)})
	}
	return compiled
}

var (
	phrasePatterns  = compile(phrases, "(?i)")
	commentPatterns = compile(commentPhrases, "(?i)")
	namePatterns    = compile(identifiers, "")
)

// commentOrText finds comments of Go and C, and literals, which may look like some.
var commentOrText = regexp.MustCompile("(?s)/\\*.*?\\*/|//[^\n]*|\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`|'(?:[^'\\\\\n]|\\\\.)+'")

// comments leaves the comments of a source text, in their lines.
func comments(text string) string {
	var left strings.Builder
	lines := func(code string) { left.WriteString(strings.Repeat("\n", strings.Count(code, "\n"))) }
	end := 0
	for _, at := range commentOrText.FindAllStringIndex(text, -1) {
		lines(text[end:at[0]])
		if part := text[at[0]:at[1]]; strings.HasPrefix(part, "/") {
			left.WriteString(part)
		} else {
			lines(part)
		}
		end = at[1]
	}
	lines(text[end:])
	return left.String()
}

// find lists the phrases of a text, in order of their lines.
func find(patterns []pattern, text string) []finding {
	var plain strings.Builder
	var begins []int // offset in plain of each line
	for line := range strings.Lines(text) {
		begins = append(begins, plain.Len())
		for _, word := range strings.Fields(marks.ReplaceAllString(line, "")) {
			plain.WriteString(word + " ")
		}
	}
	return search(patterns, plain.String(), begins)
}

// findNames lists the identifiers of a text, in order of their lines.
func findNames(text string) []finding {
	begins := []int{0}
	for line := range strings.Lines(text) {
		begins = append(begins, begins[len(begins)-1]+len(line))
	}
	return search(namePatterns, text, begins)
}

func search(patterns []pattern, text string, begins []int) (found []finding) {
	lower := strings.ToLower(text)
	for _, p := range patterns {
		if !strings.Contains(lower, p.prefix) {
			continue // many times as fast as the expression
		}
		for _, at := range p.FindAllStringIndex(text, -1) {
			line, exact := slices.BinarySearch(begins, at[0])
			for exact && line+1 < len(begins) && begins[line+1] == at[0] {
				line++ // empty lines begin where the next does
			}
			if exact {
				line++
			}
			found = append(found, finding{text[at[0]:at[1]], p.instead, line})
		}
	}
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.line, b.line), strings.Compare(a.phrase, b.phrase))
	})
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
		if got := len(find(phrasePatterns, text)) > 0; got != want {
			t.Errorf("%q: found %v, want %v", text, got, want)
		}
	}
}

func TestFindingsHaveLines(t *testing.T) {
	text := "// A first line.\n\n// Whoever comes,\n// tells the two\n// apart.\n"
	var got []int
	for _, f := range find(phrasePatterns, text) {
		got = append(got, f.line)
	}
	if want := []int{3, 4}; !slices.Equal(got, want) {
		t.Errorf("found in lines %d, want %d", got, want)
	}
	names := findNames("package p\n\ntype Law int\n\nfunc parseLaw(flaw, amend, Lawn int)\n")
	if len(names) != 2 || names[0].line != 3 || names[1].line != 5 {
		t.Errorf("names: %v, want Law in line 3 and parseLaw in line 5", names)
	}
}

// Only comments are examined for those of comments, and lines are kept.
func TestComments(t *testing.T) {
	text := "package p // Nobody\n\nvar a = \"nobody // whom\" /* and\n * somebody */ + `\nwhom`\n// It wants\n// a lock.\nvar q = '\"' // besides\n"
	var got []int
	for _, f := range find(commentPatterns, comments(text)) {
		got = append(got, f.line)
	}
	if want := []int{1, 4, 6, 8}; !slices.Equal(got, want) {
		t.Errorf("found in lines %d, want %d: %q", got, want, comments(text))
	}
}
