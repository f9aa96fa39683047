// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bufio"
	"errors"
	"io"
	"time"
)

const (
	// inputGrace is for how long a writer may have nothing to write before the
	// lines that there are no longer wait for more.
	inputGrace = 10 * time.Millisecond
	// linesAtOnce is how many lines are read ahead, and taken together.
	linesAtOnce = 2 * batchMost
)

// input are the lines of a reader, read ahead.
type input struct {
	lines chan string
	err   error // of the reader, when the lines are over
}

// readLines begins to read. It goes on until the end of its input or of the
// program.
func readLines(r io.Reader) *input {
	in := &input{lines: make(chan string, linesAtOnce)}
	go func() {
		defer close(in.lines)
		from := bufio.NewReaderSize(r, 1<<16)
		for {
			line, err := from.ReadString('\n')
			if line != "" {
				in.lines <- line
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				in.err = err
				return
			}
		}
	}()
	return in
}

// next waits for a line and returns it with those that follow at once. It says
// whether the writer has no more ready, and whether there may be more at all.
func (in *input) next() (lines []string, idle, more bool) {
	line, more := <-in.lines
	for more {
		lines = append(lines, line)
		if len(lines) >= linesAtOnce {
			return lines, false, true
		}
		select {
		case line, more = <-in.lines:
			continue
		default:
		}
		select {
		case line, more = <-in.lines:
		case <-time.After(inputGrace):
			return lines, true, true
		}
	}
	return lines, false, false
}
