// SPDX-License-Identifier: Apache-2.0

// Package progress shows how a run goes on: a bar with the time left on a
// terminal, one line a cell anywhere else. It only prints.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cheggaaa/pb/v3"
	"golang.org/x/sys/unix"

	"imbang/internal/lab/record"
)

// Overhead is about what a cell takes beside its load: a fresh director, a
// quiet machine, the readings.
const Overhead = 450 * time.Millisecond

// Watch shows a run on one file, usually standard error.
type Watch struct {
	out      io.Writer
	terminal bool
	bar      *pb.ProgressBar

	expected []time.Duration
	at       int // the cell under way
	done     time.Duration
}

// New makes a Watch; it looks at the file to see who reads.
func New(f *os.File) *Watch {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &Watch{out: f, terminal: err == nil}
}

// bar template: cells, bar, share, time left.
const template = `{{string . "cell"}} {{bar . "[" "=" ">" " " "]"}} {{percent . "%.0f%%"}} {{rtime . "%s left"}}`

// Note prints a line.
func (w *Watch) Note(text string) { fmt.Fprintln(w.out, text) }

// Planned starts the bar.
func (w *Watch) Planned(expected []time.Duration) {
	w.expected = expected
	var total time.Duration
	for _, d := range expected {
		total += d + Overhead
	}
	fmt.Fprintf(w.out, "%d cells, about %s\n", len(expected), total.Round(time.Second))
	if w.bar != nil { // cells are added
		w.bar.SetTotal(total.Milliseconds())
		return
	}
	if w.terminal {
		w.bar = pb.New64(total.Milliseconds()).SetTemplateString(template).SetWriter(w.out)
		w.bar.SetRefreshRate(250 * time.Millisecond)
		w.bar.Set("cell", "").Start()
	}
}

// Began names the cell under way.
func (w *Watch) Began(c record.Cell) {
	if w.bar != nil {
		w.bar.Set("cell", fmt.Sprintf("%d/%d %-26s", w.at+1, len(w.expected), c))
	}
}

// Within moves the bar inside a cell.
func (w *Watch) Within(elapsed time.Duration) {
	if w.bar != nil {
		w.bar.SetCurrent((w.done + min(elapsed, w.expected[w.at])).Milliseconds())
	}
}

// Ended moves on to the next cell.
func (w *Watch) Ended(s record.Sample) {
	w.done += w.expected[w.at] + Overhead
	w.at++
	if w.bar != nil {
		w.bar.SetCurrent(w.done.Milliseconds())
		if s.Error != "" {
			fmt.Fprintf(w.out, "\r\x1b[K%s\n", line(s))
		}
		return
	}
	fmt.Fprintf(w.out, "%d/%d %s\n", w.at, len(w.expected), line(s))
}

// Close ends the bar and leaves the line to what follows.
func (w *Watch) Close() {
	if w.bar != nil {
		w.bar.Finish()
	}
}

// line is a sample in one line.
func line(s record.Sample) string {
	if s.Error != "" {
		return fmt.Sprintf("%s: failed: %s", s.Cell, s.Error)
	}
	text := fmt.Sprintf("%s: %d replies, %.1f KB/s, response %.2f ms (p99 %.2f), %d lost",
		s.Cell, s.Load.Replies, s.Load.NetIOKBs, s.Load.Response.MeanMS, s.Load.Response.P99MS, s.Load.Loss.Total())
	if g := s.Load.Generator; g.Behind {
		text += "; the generator fell short: " + g.Reason
	}
	return text
}
