// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// recorded hands every recorded command line to a fuzz target's corpus.
func recorded(f *testing.F, add func(argv []string, stdin string)) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		r, _ := load(f, file)
		for _, c := range r.Transcript {
			if !c.Clear {
				add(c.Argv[1:], c.Stdin)
			}
		}
	}
}

// FuzzParse takes words separated by line ends, so that they can hold spaces.
func FuzzParse(f *testing.F) {
	recorded(f, func(argv []string, _ string) { f.Add(strings.Join(argv, "\n")) })
	n := testNames()
	f.Fuzz(func(t *testing.T, line string) {
		c, stop := parse(strings.Split(line, "\n"), n)
		if (c == nil) == (stop == nil) {
			t.Fatalf("%q: a command and a refusal, or neither", line)
		}
		if stop != nil && (stop.text == "" || stop.status != 2 && stop.status != 255) {
			t.Fatalf("%q: refused with %+v", line, *stop)
		}
		if c != nil && c.given.has(optService) && c.key().Family == 0 {
			t.Fatalf("%q: a service without a family", line)
		}
	})
}

// FuzzRestore begins with what was restored, and with every recorded command
// line as a line of a restore, ten at a time.
func FuzzRestore(f *testing.F) {
	var lines []string
	recorded(f, func(argv []string, stdin string) {
		if stdin != "" {
			f.Add(stdin)
		}
		lines = append(lines, strings.Join(argv, " "))
	})
	for ten := range slices.Chunk(lines, 10) {
		f.Add(strings.Join(ten, "\n"))
	}
	n := testNames()
	f.Fuzz(func(t *testing.T, text string) {
		table := newFake()
		status := run([]string{"-R"}, strings.NewReader(text), io.Discard, io.Discard, table.open, nil, n)
		if !slices.Contains([]int{0, 1, 2, 255}, status) {
			t.Fatalf("%q: status %d", text, status)
		}
		// What came of it can be saved and restored again.
		var first, second bytes.Buffer
		copied := newFake()
		run([]string{"-Sn"}, nil, &first, io.Discard, table.open, nil, n)
		if status := run([]string{"-R"}, bytes.NewReader(first.Bytes()), io.Discard, io.Discard, copied.open, nil, n); status != 0 {
			t.Fatalf("%q: saved as %q, which is refused with %d", text, first.String(), status)
		}
		run([]string{"-Sn"}, nil, &second, io.Discard, copied.open, nil, n)
		if sortedLines(first.String()) != sortedLines(second.String()) {
			t.Fatalf("%q: saved as %q, then as %q", text, first.String(), second.String())
		}
	})
}

// sortedLines removes the order, which ipvsadm's comparison does not determine.
func sortedLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
