// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Source is what belongs to a configuration beside its text.
type Source struct {
	Dir      string // of the file: includes are relative to it
	Base     string // the absolute directory that Dir is relative to; "": not known
	Files    Files  // nil: none
	Names    Names
	ConfigID string // keepalived's --config-id: lines with @ are for it; "": not known

	Program func(name string) (path string) // finds a program; "": it is not here; nil: none is
	User    func(name string) bool          // reports whether this machine has a user; nil: it has each
}

// File is an included file, or why it was not read.
type File struct {
	Name string
	Text []byte
	Err  error
}

// Files gives the files that a pattern names, in order, up to a number of bytes and one
// more.
type Files func(pattern string, limit int) []File

// mostMatches is the number of files that a pattern may name.
const mostMatches = 4096

// ReadFiles reads files as keepalived includes them: regular ones that are not executable
// (check_glob_file() in its lib/parser.c).
func ReadFiles(pattern string, limit int) (files []File) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return []File{{Name: pattern, Err: err}}
	}
	for i, name := range names {
		if i == mostMatches {
			return append(files, File{Name: pattern, Err: fmt.Errorf("more than %d files: the others are left out", mostMatches)})
		}
		f := File{Name: name}
		f.Text, f.Err = readRegular(name, limit)
		limit = max(limit-len(f.Text), 0)
		files = append(files, f)
	}
	return files
}

func readRegular(name string, limit int) ([]byte, error) {
	info, err := os.Stat(name) // before it is opened: a FIFO would wait for its writer
	if err != nil {
		return nil, bare(err)
	}
	switch {
	case info.IsDir():
		return nil, errors.New("a directory")
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case info.Mode()&0o111 != 0:
		return nil, errors.New("executable, which keepalived does not include")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}

// bare is an error without the file's name.
func bare(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
