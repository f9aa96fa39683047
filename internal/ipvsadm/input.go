// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

const (
	// inputGrace is for how long a writer may have nothing to write before the
	// lines that there are no longer wait for more.
	inputGrace = 10 * time.Millisecond
	// linesAtOnce is after how many lines those that were read are taken.
	linesAtOnce = 2 * batchMost
)

// input are the lines of a reader, read ahead.
type input struct {
	lines chan []string // of one read each
	err   error         // of the reader, when the lines are over
}

// readLines begins to read. It goes on until the end of its input or of the
// program.
func readLines(r io.Reader) *input {
	in := &input{lines: make(chan []string)}
	go func() {
		defer close(in.lines)
		from := bufio.NewReaderSize(r, 1<<16)
		var lines []string
		for {
			// To read on may take long. What was read goes together: between lines of a writer that is
			// fast, a busy machine would have pauses.
			if there, _ := from.Peek(from.Buffered()); len(lines) > 0 && !bytes.ContainsRune(there, '\n') {
				in.lines <- lines
				lines = nil
			}
			line, err := from.ReadString('\n')
			if line != "" {
				lines = append(lines, line)
			}
			if err == nil {
				continue
			}
			if len(lines) > 0 {
				in.lines <- lines
			}
			if !errors.Is(err, io.EOF) {
				in.err = err
			}
			return
		}
	}()
	return in
}

// next waits for lines and returns them with those that follow at once. It says
// whether the writer has no more ready, and whether there may be more at all.
func (in *input) next() (lines []string, idle, more bool) {
	lines, more = <-in.lines
	for more && len(lines) < linesAtOnce {
		var some []string
		select {
		case some, more = <-in.lines:
		case <-time.After(inputGrace):
			select { // this process itself may have had to wait
			case some, more = <-in.lines:
			default:
				return lines, true, true
			}
		}
		lines = append(lines, some...)
	}
	return lines, false, more
}
