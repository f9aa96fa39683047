// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"cmp"
	"fmt"
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

// Mistake is what is wrong with a line of the configuration that was written.
type Mistake struct {
	Line      int
	Key, Text string // the dotted path of the value, and what to do
}

// Check lists what a reader of configurations refuses, at the lines that it came from.
func (r *Result) Check(read func(text []byte) []Mistake) {
	w := r.written() // losses are behind all that they are about
	for _, m := range read(w.Bytes()) {
		at := place{file: r.from}
		if m.Line > 0 && m.Line <= len(w.lines) {
			at = w.lines[m.Line-1]
		}
		r.lose(at, cmp.Or(m.Key, "the whole configuration"), "imbang check refuses what it became: %s", m.Text)
	}
}
