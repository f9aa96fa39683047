// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

const (
	kept    = 1000     // events in memory
	maxFile = 16 << 20 // of the file [bytes]: then it becomes FILE.1, and that one goes
	waiting = 256      // events that a follower may be behind
)

// Log has the events of a daemon. Its methods may be called by any goroutine.
type Log struct {
	mu        sync.Mutex
	number    uint64
	last      []Event
	file      *os.File
	path      string
	size      int64
	followers map[chan Event]bool
}

// Open makes a log that appends to a file; without a path there is none.
func Open(path string) (*Log, error) {
	l := &Log{path: path, followers: map[chan Event]bool{}}
	if path == "" {
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("log of events: %w", err)
	}
	l.recall()
	return l, l.open()
}

// recalled is how much of a file's end is read for the events before this daemon
// [bytes].
const recalled = 512 << 10

// recall reads the last events of the file, as far as it can be read.
func (l *Log) recall() {
	f, err := os.Open(l.path)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > recalled {
		_, _ = f.Seek(-recalled, io.SeekEnd)
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, recalled)
	for lines.Scan() {
		var e Event
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Number > 0 { // the first may be cut
			l.last, l.number = append(l.last, e), e.Number
		}
	}
	l.last = slices.Clone(l.last[max(0, len(l.last)-kept):])
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("log of events: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Close ends the file and all followers.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.followers {
		close(c)
	}
	l.followers = map[chan Event]bool{}
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Add numbers an event, makes its texts printable, keeps it and passes it on. A follower that does not keep up is
// given up: its channel is closed. The error is the file's; the event is kept in any
// case.
func (l *Log) Add(e Event) (Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	e = e.Printable()
	e.Number = l.number
	l.last = append(l.last, e)
	if len(l.last) > 2*kept {
		l.last = slices.Clone(l.last[len(l.last)-kept:])
	}
	for c := range l.followers {
		select {
		case c <- e:
		default:
			close(c)
			delete(l.followers, c)
		}
	}
	return e, l.write(e)
}

func (l *Log) write(e Event) error {
	if l.file == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if l.size > maxFile {
		if err := errors.Join(l.file.Close(), os.Rename(l.path, l.path+".1"), l.open()); err != nil {
			return fmt.Errorf("log of events: %w", err)
		}
	}
	n, err := l.file.Write(append(line, '\n'))
	l.size += int64(n)
	if err != nil {
		return fmt.Errorf("log of events: %w", err)
	}
	return nil
}

// Last are the latest n events in memory, the earliest first.
func (l *Log) Last(n int) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last[max(0, len(l.last)-min(n, kept)):])
}

// Follow returns the latest n events, a channel of those that come after, and what
// ends it. The channel is closed when the log is, or when its reader is too slow.
func (l *Log) Follow(n int) (before []Event, after <-chan Event, stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan Event, waiting)
	l.followers[c] = true
	stop = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.followers[c] {
			delete(l.followers, c)
			close(c)
		}
	}
	return slices.Clone(l.last[max(0, len(l.last)-min(n, kept)):]), c, stop
}
