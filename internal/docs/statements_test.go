// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"imbang/internal/daemon/config"
	"imbang/internal/director"
	"imbang/internal/lab/engine"
)

// cells counts the cells of a row of a table. A | within backquotes or behind a \ is text.
func cells(row string) int {
	row = span.ReplaceAllString(strings.ReplaceAll(row, `\|`, ""), "code")
	return strings.Count(strings.Trim(strings.TrimSpace(row), "|"), "|") + 1
}

// Renderers cut surplus cells of a row without a word.
func TestTablesAreRectangular(t *testing.T) {
	tables := 0
	for _, page := range pages(t) {
		header := 0
		for i, l := range prose(comment.ReplaceAllStringFunc(read(t, page), blankLines)) {
			switch {
			case !strings.HasPrefix(strings.TrimSpace(l), "|"):
				header = 0
			case header == 0:
				header = cells(l)
				tables++
			case cells(l) != header:
				t.Errorf("%s:%d: %d cells, the header has %d: %s", page, i+1, cells(l), header, l)
			}
		}
	}
	if tables < 100 {
		t.Errorf("%d tables: they are not found", tables)
	}
}

// blankLines is a text without its characters; lines keep their numbers.
func blankLines(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// Lines that the help of a command names as imbang's own settings are those.
func TestHelpNamesTheSettingsThatLinuxLacks(t *testing.T) {
	help := strings.Join(strings.Fields(read(t, "docs/reference/imbang/settings.md")), " ")
	_, sentence, _ := strings.Cut(help, "Linux does not have ")
	sentence, _, _ = strings.Cut(sentence, ".")
	own := 0
	for _, s := range director.DescribeSettings() {
		if named := regexp.MustCompile(`\b` + s.Name + `\b`).MatchString(sentence); named == s.Linux {
			t.Errorf("%s: Linux has it: %t; the help says of the settings that it does not have: %q", s.Name, s.Linux, sentence)
		}
		if s.Linux {
			continue
		}
		own++
		if s.Default != 0 && !strings.Contains(help, fmt.Sprintf("%s is %d by default", s.Name, s.Default)) {
			t.Errorf("%s has the default %d, which the help does not say", s.Name, s.Default)
		}
	}
	if own == 0 {
		t.Error("no setting is imbang's own")
	}
}

func TestStudyPageNamesEveryEngine(t *testing.T) {
	page := read(t, "docs/reference/study.md")
	for _, name := range engine.Names() {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/reference/study.md does not name the engine %s", name)
		}
	}
}

// RFC 9568 obsoletes RFC 5798.
func TestPagesNameTheCurrentRFCOfVRRP(t *testing.T) {
	for _, page := range pages(t) {
		if strings.Contains(read(t, page), "RFC 5798") {
			t.Errorf("%s names RFC 5798, which RFC 9568 obsoletes", page)
		}
	}
}

// A default that a flag does not have by itself but from elsewhere reads as 0s.
func TestHelpHasNoDefaultOfZeroSeconds(t *testing.T) {
	for _, page := range pages(t) {
		if strings.Contains(read(t, page), "(default 0s)") {
			t.Errorf("%s: (default 0s): the help must say what happens without the flag", page)
		}
	}
}

// README counts the targets of the path that are missed.
func TestReadmeCountsMissedTargets(t *testing.T) {
	words := strings.Fields("none one two three four five six seven eight nine ten")
	_, path, _ := strings.Cut(read(t, "docs/performance.md"), "\n## Path\n")
	path, _, _ = strings.Cut(path, "\n## ")
	all, missed, direct := 0, 0, 0
	for l := range strings.Lines(path) {
		if m := regexp.MustCompile(`^\| ([^|]*) \| at (?:least|most) [^|]* \| [^|]* \| (met|missed)`).FindStringSubmatch(l); m != nil {
			all++
			if m[2] == "missed" {
				missed++
				if strings.HasSuffix(m[1], "ratio to direct") {
					direct++
				}
			}
		}
	}
	if all == 0 || all >= len(words) {
		t.Fatalf("docs/performance.md has %d targets of the path", all)
	}
	want := words[missed] + " of the " + words[all] + " targets of `path`, " + words[direct] + " of them beside plain forwarding"
	if !strings.Contains(strings.Join(strings.Fields(read(t, "README.md")), " "), want) {
		t.Errorf("README.md does not say %q", want)
	}
}

// Building requires the Go of go.mod; running requires none.
func TestInstallNamesTheGoOfTheModule(t *testing.T) {
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	for _, page := range []string{"README.md", "docs/how-to/install.md"} {
		if !strings.Contains(read(t, page), "Go "+string(version[1])) {
			t.Errorf("%s does not say that Go %s builds imbang", page, version[1])
		}
	}
}

// README's configurations are valid, and parts of one file once an address that moves is in its group alone.
func TestReadmeConfigurations(t *testing.T) {
	page := read(t, "README.md")
	blocks := yamlBlock.FindAllStringSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d configurations", len(blocks))
	}
	for _, b := range blocks {
		if _, err := config.Parse("README.md", []byte(b[1])); err != nil {
			t.Errorf("%v\n%s", err, b[1])
		}
	}
	both := blocks[0][1] + blocks[1][1]
	if _, err := config.Parse("README.md", []byte(both)); err != nil && !strings.Contains(page, "and not in `director.addresses`") {
		t.Errorf("README.md does not say why it is refused: %v", err)
	}
	both = strings.Replace(both, ", addresses: [{address: 10.20.0.1/32}]}", "}", 1)
	if _, err := config.Parse("README.md", []byte(both)); err != nil {
		t.Errorf("%v\n%s", err, both)
	}
}

// The doctor's command for some problems only shows the cause, as of an expired certificate, and some have none.
func TestDoctorFixesNotEachProblem(t *testing.T) {
	promise := regexp.MustCompile(`(?i)commands? that (fix(es)?|repairs?) (it|(each|every) problem)\b( or shows)?`)
	for _, page := range pages(t) {
		for _, m := range promise.FindAllStringSubmatch(strings.Join(strings.Fields(read(t, page)), " "), -1) {
			if m[len(m)-1] == "" {
				t.Errorf("%s: %s: not for all", page, m[0])
			}
		}
	}
}

// A server of weight 0 gets new connections of persistent clients, as on Linux; one that imbang drain drains does not.
func TestWeightZeroIsNotDraining(t *testing.T) {
	statement := regexp.MustCompile(`(?i)\bweight (of )?0\b[^.:|]*(no new|draining)[^.:|]*[.:]`)
	found := 0
	for _, page := range []string{"docs/how-to/health.md", "docs/how-to/drain.md"} {
		for _, s := range statement.FindAllString(strings.Join(strings.Fields(read(t, page)), " "), -1) {
			if found++; !strings.Contains(s, "persistent") {
				t.Errorf("%s: %s: not those of persistent clients", page, s)
			}
		}
	}
	if found < 2 {
		t.Errorf("%d statements", found)
	}
}

// Stored figures are older than the code: the text beside them has the day of the run, and says so.
func TestStoredFiguresAreDated(t *testing.T) {
	day := func(file string) string {
		m := regexp.MustCompile(`"date":\s*"(\d{4}-\d\d-\d\d)T`).FindStringSubmatch(read(t, file))
		if m == nil {
			t.Fatalf("%s has no date", file)
		}
		return m[1]
	}
	path := regexp.MustCompile("`imbang bench path`, series \\d+, ([0-9-]+),").FindStringSubmatch(read(t, "docs/performance.md"))
	if path == nil {
		t.Fatal("docs/performance.md has no date of bench path")
	}
	const some = `\d{4}-\d\d-\d\d`
	for _, one := range []struct{ page, above, day string }{
		{"README.md", "| ratio to | new connections |", path[1]},
		{"README.md", "| cost of a packet |", some},
		{"docs/packet-cost.md", "## Beside other forwarders", some},
		{"docs/daemon-performance.md", "## Detection", day("docs/bench/daemon.json")},
		{"docs/layer7-performance.md", "## The rendered configuration", day("docs/bench/layer7.json")},
		{"docs/sync-performance.md", "## Method", day("docs/bench/sync.json")},
		{"docs/studies.md", "| study | question |", some},
		{"docs/kernels.md", "| suite of `make check-6.1` |", some},
	} {
		text, _, found := strings.Cut(read(t, one.page), one.above)
		text = strings.Join(strings.Fields(text), " ")
		text = text[max(0, len(text)-1200):]
		if !found || !regexp.MustCompile(one.day+`[^.:]* an earlier build`).MatchString(text) {
			t.Errorf("%s: above %q want %s, and that the figures are of an earlier build", one.page, one.above, one.day)
		}
	}
}
