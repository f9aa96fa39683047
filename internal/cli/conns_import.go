// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"imbang/internal/director"
	"imbang/internal/model"
)

const (
	// importLine is the longest line of an import [bytes].
	importLine = 1 << 16
	// importRefusals is how many refusals are reported one by one.
	importRefusals = 10
)

// importReport is what became of an import.
type importReport struct {
	Entered  uint64          `json:"entered"`
	Existed  uint64          `json:"existed"`
	Refused  uint64          `json:"refused"`
	Refusals []importRefusal `json:"refusals,omitempty"` // the first ones
}

type importRefusal struct {
	Line  uint64 `json:"line"`
	Entry string `json:"entry"`
	Why   string `json:"why"`
}

func (r importReport) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d entered, %d existed, %d refused\n", r.Entered, r.Existed, r.Refused)
	for _, one := range r.Refusals {
		if err == nil {
			_, err = fmt.Fprintf(w, "line %d: %s: %s\n", one.Line, one.Entry, one.Why)
		}
	}
	if more := r.Refused - uint64(len(r.Refusals)); err == nil && more > 0 {
		_, err = fmt.Fprintf(w, "%d more were refused\n", more)
	}
	return err
}

// importConns enters what a file has, "-" being standard input. Of a file that can be
// read twice nothing is entered if one of its lines is not an entry.
func importConns(ctx context.Context, d *director.Director, name string, stdin io.Reader) (report importReport, err error) {
	if name == "-" {
		err = report.enter(ctx, d.Insert, untilDone(ctx, stdin))
		return report, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return report, err
	}
	if !info.Mode().IsRegular() {
		if err := report.enter(ctx, d.Insert, untilDone(ctx, &opened{name: name})); err != nil {
			return report, fmt.Errorf("%s: %w", name, err)
		}
		return report, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return report, err
	}
	defer f.Close()
	if err := checkEntries(ctx, f); err != nil {
		return report, fmt.Errorf("%s: %w (nothing was entered)", name, err)
	}
	if err := report.enter(ctx, d.Insert, f); err != nil {
		return report, fmt.Errorf("%s: %w", name, err)
	}
	return report, nil
}

// checkEntries reads a file that is read again afterwards.
func checkEntries(ctx context.Context, f *os.File) error {
	err := eachEntry(f, func(uint64, model.Connection) error {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return nil
	})
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return err
}

// opened is a file that is opened by the first read: to open a FIFO is to wait for its
// writer.
type opened struct {
	name string
	f    *os.File
}

func (o *opened) Read(p []byte) (n int, err error) {
	if o.f == nil {
		if o.f, err = os.Open(o.name); err != nil {
			return 0, err
		}
	}
	return o.f.Read(p)
}

// untilDone reads from a stream that may keep its reader waiting, until the context is
// done. Who waits then is left behind: the process ends.
func untilDone(ctx context.Context, from io.Reader) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(errInterrupted) })
	go func() {
		_, err := io.Copy(w, from)
		_ = w.CloseWithError(err)
	}()
	return r
}

var errInterrupted = errors.New("interrupted")

// eachEntry reads entries, one a line, until one is none; lines that are empty do not
// count.
func eachEntry(r io.Reader, call func(line uint64, c model.Connection) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4096), importLine)
	n := uint64(0)
	for lines.Scan() {
		n++
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		c, err := parseConn(lines.Bytes())
		if err != nil {
			if e := lines.Err(); e != nil { // the line was cut by that
				return e
			}
			return fmt.Errorf("line %d is not an entry that imbang conns -o json writes: %w", n, err)
		}
		if err := call(n, c); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %d bytes", n+1, importLine)
	}
	return lines.Err()
}

// insertion is director.Insert.
type insertion func([]model.Connection) ([]error, error)

// enter enters what a stream has, many at a time. The lock is not held while it is read.
func (r *importReport) enter(ctx context.Context, insert insertion, from io.Reader) error {
	entries := make([]model.Connection, 0, director.InsertBatch)
	lines := make([]uint64, 0, director.InsertBatch)
	flush := func() error {
		if len(entries) == 0 {
			return nil
		}
		batch, at := entries, lines
		entries, lines = entries[:0], lines[:0] // also if it fails: once more would only fail again
		errs, err := insert(batch)
		if err != nil {
			return err
		}
		for i, err := range errs {
			r.add(at[i], &batch[i], err)
		}
		return nil
	}
	err := eachEntry(from, func(line uint64, c model.Connection) error {
		entries, lines = append(entries, c), append(lines, line)
		if len(entries) < director.InsertBatch {
			return nil
		}
		if err := flush(); err != nil || ctx.Err() == nil {
			return err
		}
		return errInterrupted
	})
	if ctx.Err() != nil { // the signal may have ended the writer, too: the stream is cut
		err = errInterrupted
	}
	return errors.Join(flush(), err) // what came before a bad line, or a signal, counts
}

func (r *importReport) add(line uint64, c *model.Connection, err error) {
	switch {
	case err == nil:
		r.Entered++
	case errors.Is(err, director.ErrConnectionExists):
		r.Existed++
	default:
		r.Refused++
		if len(r.Refusals) < importRefusals {
			r.Refusals = append(r.Refusals, importRefusal{line, connName(c), err.Error()})
		}
	}
}

// connName names an entry in messages.
func connName(c *model.Connection) string {
	if c.Template {
		return fmt.Sprintf("template of %s to %s", c.Client.Addr(), c.Service)
	}
	return fmt.Sprintf("%s > %s/%s", c.Client, c.Virtual, c.Protocol.Word())
}
