// SPDX-License-Identifier: Apache-2.0

// Package jsonfile writes files of one JSON value.
package jsonfile

import (
	"encoding/json"
	"os"
)

// Write stores a value as indented JSON, whole or not at all: a file that was there
// stays until the new one is complete.
func Write(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
