// SPDX-License-Identifier: Apache-2.0

// Package accesslog turns a web server's access log into a load to replay:
// requests of the same paths, by the same clients, at the same times.
//
// It reads the common and the combined format as Apache and nginx write them,
// plain or gzip by the file's suffix. The client may have a virtual host before
// it, and may be a list of X-Forwarded-For. A line it cannot read is counted and the first one named; it never
// ends the reading. The package knows of the load generator only the shape of
// a trace, and sends nothing.
//
// Files:
//
//	accesslog.go  logs and their files
//	line.go       one line (pure)
//	replay.go     a log as a trace (pure)
package accesslog

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Entry is one request of a log.
type Entry struct {
	Time   time.Time // to the second
	Client string    // an address, or a name where the server looked it up
	Method string    // empty when the client sent no request, or none of HTTP
	Target string    // as in the request, escapes of the log undone
	Status int
	Bytes  int64 // of the reply's content
}

// Log is what a file held, in the order of time.
type Log struct {
	Entries []Entry
	Bad     int    // lines that are not of the format
	First   string // the first of them: name, line and what is wrong
	SHA256  string // of the file, compressed as it is; empty without one
}

// maxLine is far above what servers write: they bound the request.
const maxLine = 1 << 20

// ReadFile reads the log of a file; one whose name ends in .gz is compressed.
func ReadFile(path string) (*Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("access log: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	var in io.Reader = io.TeeReader(f, sum)
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("access log %s: %w", path, err)
		}
		defer z.Close()
		in = z
	}
	l, err := Read(in, path)
	if err != nil {
		return nil, err
	}
	l.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return l, nil
}

// Read reads a log; name is for messages. A log without any entry is an error.
func Read(in io.Reader, name string) (*Log, error) {
	l := &Log{}
	p := parser{known: map[string]string{}}
	r := bufio.NewReaderSize(in, 64<<10)
	for number := 1; ; number++ {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) && line == "" {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLong) {
			return nil, fmt.Errorf("access log %s: line %d: %w", name, number, err)
		}
		l.add(&p, name, number, line, err)
	}
	if len(l.Entries) == 0 && l.Bad > 0 {
		return nil, fmt.Errorf("access log %s: not in the common or combined format: %s", name, l.First)
	}
	if len(l.Entries) == 0 {
		return nil, fmt.Errorf("access log %s: it is empty", name)
	}
	// Servers log a request when it ends, so that seconds may be mixed.
	slices.SortStableFunc(l.Entries, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return l, nil
}

// add takes one line, good, bad or blank.
func (l *Log) add(p *parser, name string, number int, line string, err error) {
	if strings.TrimSpace(line) == "" && !errors.Is(err, errLong) {
		return
	}
	var e Entry
	if !errors.Is(err, errLong) {
		e, err = p.entry(line)
	}
	if err == nil {
		l.Entries = append(l.Entries, e)
		return
	}
	if l.Bad++; l.Bad == 1 {
		l.First = fmt.Sprintf("%s:%d: %v", name, number, err)
	}
}

var errLong = fmt.Errorf("longer than %d bytes", maxLine)

// readLine is the next line without its end. One that is too long is read to
// its end and not kept. At the end of input the error is io.EOF, with the last
// line if it has no end of its own.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !(errors.Is(err, io.EOF) && long):
			return string(line), err
		case long:
			return "", errLong
		}
		return strings.TrimRight(string(line), "\r\n"), nil
	}
}
