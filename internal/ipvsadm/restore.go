// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"fmt"
	"io"
	"strings"
)

// restore runs every line of standard input as a command line.
//
// A line the table refuses, or whose options cannot be read, is reported and
// the next one runs; a line that is wrong in what it says ends the restore,
// and nothing already done is undone. The status is that of the last line, as
// ipvsadm has it.
//
// Standard input is read to its end first, so that the table is not held
// while a slow writer is waited for.
func (s *session) restore() *exit {
	text, err := io.ReadAll(s.stdin)
	if err != nil {
		return &exit{status: 255, text: fmt.Sprintf("ipvsadm: standard input: %v", err), stop: true}
	}
	var last *exit
	err = s.table.Batch(func(t Table) error {
		inner := *s
		inner.table, inner.restoring = t, true
		for line := range strings.Lines(string(text)) {
			args := splitLine(line)
			if len(args) == 0 {
				continue
			}
			last = inner.line(args)
			if last != nil && last.stop {
				return nil
			}
			inner.report(last)
		}
		return nil
	})
	if err != nil {
		if last != nil && last.stop {
			s.report(last)
		}
		return &exit{status: 255, text: explain(verbRestore, err), stop: true}
	}
	if last != nil && !last.stop {
		return &exit{status: last.status} // already reported
	}
	return last
}

// splitLine cuts a line of a restore into words. There are no quotes and no
// comments; the word "ipvsadm" is dropped wherever it stands, so that the
// output of a script of ipvsadm commands can be restored.
func splitLine(line string) (args []string) {
	for _, word := range strings.FieldsFunc(line, isBlank) {
		word, _, _ = strings.Cut(word, "\x00") // C strings end here
		if word != "ipvsadm" {
			args = append(args, word)
		}
	}
	return args
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' }
