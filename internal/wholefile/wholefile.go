// SPDX-License-Identifier: Apache-2.0

// Package wholefile replaces files whole or not at all, also if the power fails: a new file is
// filled beside the old one and then gets its name.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Fill writes a text to a new file and to the disk, and closes the file. If that fails, the file
// is removed.
func Fill(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Rename gives a file that was filled another name in its directory, in the place of the file
// that has it. If that fails, the filled file is removed.
func Rename(filled, name string) error {
	if err := os.Rename(filled, name); err != nil {
		return errors.Join(err, os.Remove(filled))
	}
	return SyncNames(name)
}

// SyncNames writes the names of a file's directory to the disk: until then, a power failure
// brings back the file that was replaced.
func SyncNames(name string) error {
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
