// SPDX-License-Identifier: Apache-2.0

// Package accesslog writes what HAProxy says of requests to the files of listeners.
//
// HAProxy writes lines to a FIFO, which is its standard output (package haproxy). Each begins with
// the listener's name, and goes to the end of that one's file. A file that was renamed or removed
// is made again with the next line after a second, so that a program that rotates files has to tell nobody.
//
// HAProxy has the FIFO open for reading, too: it does not notice when there is no reader, and
// another one goes on with what is in it. While it is full, lines are lost, and HAProxy counts
// them (DroppedLogs of `show info`), with those of a thread that would have to wait for another one.
package accesslog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Prefix begins each line; after it come the listener's name and a space.
const Prefix = "<6>"

// Times and amounts.
const (
	lookTime  = time.Second // between two looks whether files are still those of their names
	holdTime  = 200 * time.Millisecond
	complains = time.Minute // between two messages about what cannot be written
	lineLimit = 64 << 10    // bytes; HAProxy's longest has 16 KiB
	pipeSize  = 1 << 20     // bytes that wait for a reader
)

// Open makes the FIFO, unless it is there, and opens it for a reader and for a writer.
func Open(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("access log: %s: %w", path, err)
	}
	// To read and write, so that it is opened without the other side, and never at its end.
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) }) // more than a user may: as it is
	}
	return f, nil
}

// Writer writes lines to files.
type Writer struct {
	// Names is a file with an object in JSON: the path of each listener's log. It may be
	// replaced by another one.
	Names string
	Log   *slog.Logger

	names  map[string]string
	of     string // the file that Names led to when it was read
	files  map[string]*file
	looked time.Time
	lost   int // lines since the last message
	why    error
	told   time.Time
}

type file struct {
	*os.File
	w *bufio.Writer
}

// Run reads lines until the context ends, and closes the FIFO.
func (w *Writer) Run(ctx context.Context, fifo *os.File) {
	w.files = map[string]*file{}
	stop := context.AfterFunc(ctx, func() { _ = fifo.Close() })
	defer stop()
	defer fifo.Close()
	defer w.close()
	in := bufio.NewReaderSize(fifo, lineLimit)
	var part []byte // of a line: HAProxy writes lines at once, but to a full FIFO
	for {
		// What has come is written soon, also if nothing follows.
		_ = fifo.SetReadDeadline(time.Now().Add(holdTime))
		line, err := in.ReadSlice('\n')
		now := time.Now()
		switch {
		case err == nil:
			if len(part) > 0 {
				line, part = append(part, line...), nil
			}
			w.line(line, now)
			if in.Buffered() == 0 {
				w.flush()
			}
		case errors.Is(err, bufio.ErrBufferFull):
			w.lose(errors.New("a line is longer than 64 KiB"))
		case errors.Is(err, os.ErrDeadlineExceeded):
			if part = append(part, line...); len(part) > lineLimit {
				part = nil
			}
			w.flush()
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF):
			return
		default:
			w.lose(err)
			time.Sleep(holdTime)
		}
		w.complain(now)
	}
}

// ofConnection are lines about a connection that ended before its first request, as by a handshake
// that failed: "127.0.0.1:47264 [26/Nov/2026:13:51:34.691] shop/1: SSL handshake failure". They have
// HAProxy's own format, and are no requests.
var ofConnection = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("^" + Prefix + `\S+:[0-9]+ \[[^]]*\] \S+/\S+: `)
})

// line writes one to its file.
func (w *Writer) line(line []byte, now time.Time) {
	text, is := bytes.CutPrefix(line, []byte(Prefix))
	if !is {
		return // HAProxy's own, which it also says otherwise
	}
	name, text, is := bytes.Cut(text, []byte(" "))
	if !is || ofConnection().Match(line) {
		return
	}
	if now.Sub(w.looked) >= lookTime {
		w.looked = now
		w.look()
	}
	path, known := w.names[string(name)]
	if !known {
		w.read()
		if path, known = w.names[string(name)]; !known {
			w.lose(fmt.Errorf("the configuration has no log of listener %s any more", name))
			return
		}
	}
	f, err := w.file(path)
	if err == nil {
		_, err = f.w.Write(text)
	}
	if err != nil {
		w.failed(path, err)
	}
}

// read reads the names.
func (w *Writer) read() {
	to, err := filepath.EvalSymlinks(w.Names)
	if err != nil || to == w.of {
		return
	}
	text, err := os.ReadFile(to)
	names := map[string]string{}
	if err != nil || json.Unmarshal(text, &names) != nil {
		return
	}
	w.names, w.of = names, to
}

// look sees whether names lead to other files by now.
func (w *Writer) look() {
	w.read()
	for path, f := range w.files {
		is, err := f.Stat()
		now, err2 := os.Stat(path)
		if errors.Join(err, err2) == nil && os.SameFile(is, now) {
			continue
		}
		if err := f.w.Flush(); err != nil {
			w.lose(err)
		}
		_ = f.Close()
		delete(w.files, path)
	}
}

// file is open at the end of a file, which is made with the permissions of the directory's other
// readers left out.
func (w *Writer) file(path string) (*file, error) {
	if f := w.files[path]; f != nil {
		return f, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return nil, err
	}
	one := &file{f, bufio.NewWriterSize(f, lineLimit)}
	w.files[path] = one
	return one, nil
}

// flush writes what is held.
func (w *Writer) flush() {
	for path, f := range w.files {
		if err := f.w.Flush(); err != nil {
			w.failed(path, err)
		}
	}
}

// failed drops what could not be written. The file is opened again for the next line.
func (w *Writer) failed(path string, err error) {
	w.lose(err)
	if f := w.files[path]; f != nil {
		_ = f.Close()
		delete(w.files, path)
	}
}

func (w *Writer) lose(why error) { w.lost, w.why = w.lost+1, why }

// complain says that lines were lost, not for each.
func (w *Writer) complain(now time.Time) {
	if w.lost == 0 || now.Sub(w.told) < complains {
		return
	}
	w.Log.Warn("lines of access logs are lost", "lines or writes", w.lost, "error", w.why)
	w.lost, w.told = 0, now
}

func (w *Writer) close() {
	w.flush()
	for _, f := range w.files {
		_ = f.Close()
	}
}
