// SPDX-License-Identifier: Apache-2.0

// Package readfile reads files whose names users give: a pipe, a device or a file that
// grows neither blocks the reader nor fills its memory.
package readfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is the error for a directory, pipe, socket or device.
var ErrNotRegular = errors.New("not a regular file")

// TooLarge is the error for a file of more bytes than Max.
type TooLarge struct{ Max int64 }

func (e TooLarge) Error() string { return fmt.Sprintf("larger than %d KiB", e.Max>>10) }

// Regular returns the text of a regular file of at most so many bytes, and what the file
// was before it was read. Errors begin with the path.
func Regular(path string, limit int64) ([]byte, fs.FileInfo, error) {
	text, info, err := read(path, limit)
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	if err != nil {
		return nil, info, fmt.Errorf("%s: %w", path, err)
	}
	return text, info, nil
}

func read(path string, limit int64) ([]byte, fs.FileInfo, error) {
	// The open of a pipe waits for a writer otherwise.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return readOpen(f, limit, func(fs.FileInfo) error { return nil })
}

func readOpen(f *os.File, limit int64, allowed func(fs.FileInfo) error) ([]byte, fs.FileInfo, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case info.IsDir():
		return nil, info, syscall.EISDIR
	case !info.Mode().IsRegular():
		return nil, info, ErrNotRegular
	}
	if err := allowed(info); err != nil {
		return nil, info, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = TooLarge{limit}
	}
	return text, info, err
}
