// SPDX-License-Identifier: Apache-2.0

package hooks

import "strings"

const (
	tailSize = 4096 // of a command's output, in memory [bytes]
	shown    = 200  // of its last line, in events [bytes]
)

// tail keeps the last bytes that are written to it: a command may write without end.
type tail struct{ text []byte }

// Write is io.Writer's.
func (t *tail) Write(p []byte) (int, error) {
	if len(p) >= tailSize {
		t.text = append(t.text[:0], p[len(p)-tailSize:]...)
		return len(p), nil
	}
	if over := len(t.text) + len(p) - tailSize; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	t.text = append(t.text, p...)
	return len(p), nil
}

// lastLine is the last line that is not empty, cut.
func (t *tail) lastLine() string {
	s := strings.TrimSpace(string(t.text))
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return s[:min(len(s), shown)]
}
