// SPDX-License-Identifier: Apache-2.0

// Package jsonfile writes files of one JSON value.
package jsonfile

import (
	"encoding/json"
	"os"

	"imbang/internal/wholefile"
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
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if err := wholefile.Fill(f, append(b, '\n')); err != nil {
		return err
	}
	return wholefile.Rename(f.Name(), path)
}
