// SPDX-License-Identifier: Apache-2.0

// Package jsonfile writes files of one JSON value.
package jsonfile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// Write stores a value as indented JSON, whole or not at all: a file that was there
// stays until the new one is complete.
func Write(path string, v any) error { return write(path, v, 0o644) }

// WritePrivate is Write of a file that only its owner reads.
func WritePrivate(path string, v any) error { return write(path, v, 0o600) }

func write(path string, v any, mode os.FileMode) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := writeThrough(path+".new", append(b, '\n'), mode); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// syncDirectory writes a directory's names to the disk: until then, a power failure
// brings back the file that was replaced.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeThrough writes a file to the disk: after a power failure the name must not
// stand for an empty one.
func writeThrough(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
