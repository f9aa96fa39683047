// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Seen is what the files of a configuration were before they were read: those that were
// included, those that could not be read, and the patterns of includes.
type Seen struct {
	patterns []string // the first one is the configuration's own path
	files    map[string]stamp
}

// stamp is what is compared of a file. The zero value is of one that is not there.
type stamp struct {
	size    int64
	changed time.Time
	inode   uint64 // a file may take another's place with its size and time
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), changed: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// note keeps what a file was; info is nil if it could not be opened.
func (s *Seen) note(path string, info fs.FileInfo) {
	if info == nil {
		var err error
		if info, err = os.Stat(path); err != nil {
			s.files[path] = stamp{}
			return
		}
	}
	s.files[path] = stampOf(info)
}

// Again looks at the files as they are now, those among them that patterns match now.
func (s *Seen) Again() *Seen {
	now := &Seen{patterns: s.patterns, files: map[string]stamp{}}
	now.note(s.patterns[0], nil)
	for _, pattern := range s.patterns[1:] {
		paths, _ := filepath.Glob(pattern) // one that is wrong was named when it was read
		for _, path := range paths {
			now.note(path, nil)
		}
	}
	return now
}

// Equal reports whether nothing has changed from one look to the other.
func (s *Seen) Equal(o *Seen) bool { return maps.Equal(s.files, o.files) }
