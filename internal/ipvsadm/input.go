// SPDX-License-Identifier: Apache-2.0

package ipvsadm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// inputGrace is for how long a writer may have nothing to write before the
	// lines that there are no longer wait for more.
	inputGrace = 10 * time.Millisecond
	// linesAtOnce is after how many lines those that were read are taken.
	linesAtOnce = 2 * batchMost
	// mostOfLine is the length of a line [bytes].
	mostOfLine = 1 << 14
)

// input are the lines of a reader. No other thread reads ahead: the lines of a file would have pauses
// where the machine runs that thread late, and a batch would end in the middle of a service.
type input struct {
	from io.Reader
	part []byte // of a line whose end was not read
	err  error  // of the reader or of a line, when the lines are over
}

// next waits for lines and returns them with those that follow at once. It says
// whether the writer has no more ready, and whether there may be more at all.
func (in *input) next() (lines []string, idle, more bool) {
	chunk := make([]byte, 1<<16)
	for len(lines) < linesAtOnce {
		if len(lines) > 0 && !in.ready() {
			return lines, true, true
		}
		n, err := in.from.Read(chunk)
		there := chunk[:n]
		for {
			line, rest, whole := bytes.Cut(there, []byte("\n"))
			if in.part = append(in.part, line...); len(in.part) > mostOfLine {
				in.err = fmt.Errorf("a line is longer than %d bytes", mostOfLine)
				return lines, false, false
			}
			if !whole {
				break
			}
			lines = append(lines, string(in.part))
			in.part, there = in.part[:0], rest
		}
		if err == nil {
			continue
		}
		if len(in.part) > 0 {
			lines = append(lines, string(in.part))
		}
		if !errors.Is(err, io.EOF) {
			in.err = err
		}
		return lines, false, false
	}
	return lines, false, true
}

// ready reports whether a read has something, or the end, within inputGrace. Only a file can wait.
func (in *input) ready() bool {
	f, is := in.from.(*os.File)
	if !is {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for until := time.Now().Add(inputGrace); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(until)).Milliseconds()))
		if err != unix.EINTR {
			return n != 0 // what cannot be polled is read, too
		}
	}
}
