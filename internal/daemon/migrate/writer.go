// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// writer is a text that knows what each of its lines came from.
type writer struct {
	bytes.Buffer
	at    place
	lines []place
}

func (w *writer) p(format string, args ...any) {
	from := w.Len()
	fmt.Fprintf(w, format+"\n", args...)
	for range bytes.Count(w.Bytes()[from:], []byte("\n")) {
		w.lines = append(w.lines, w.at)
	}
}

// source is where a line came from.
func (w *writer) source(r *Result, line int) place {
	if line > 0 && line <= len(w.lines) {
		return w.lines[line-1]
	}
	return place{file: r.from}
}

// Mistake is what is wrong with a line of the configuration that was written.
type Mistake struct {
	Line      int
	Key, Text string // the dotted path of the value, and what to do
}

// Check lists what a reader of configurations refuses, and what YAML cannot have, at the lines
// that it came from.
func (r *Result) Check(read func(text []byte) []Mistake) {
	w := r.written() // losses are behind all that they are about
	mistakes := read(w.Bytes())
	line := 0
	for text := range bytes.Lines(w.Bytes()) {
		if line++; invalid.Match(text) {
			r.lose(w.source(r, line), beginning(strings.TrimSpace(string(text))), "has \\ufffd in place of bytes that are not UTF-8: convert the file to UTF-8")
		}
	}
	for _, m := range mistakes {
		r.lose(w.source(r, m.Line), cmp.Or(m.Key, "the whole configuration"), "imbang check refuses what it became: %s", m.Text)
	}
}

// invalid finds what quoted writes for a byte that is not UTF-8.
var invalid = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\ufffd`)
