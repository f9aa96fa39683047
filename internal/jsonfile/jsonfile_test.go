// SPDX-License-Identifier: Apache-2.0

package jsonfile

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A private file is its owner's, also in the place of one that was not.
func TestWritePrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	for _, w := range []struct {
		write func(string, any) error
		mode  os.FileMode
	}{{Write, 0o644}, {WritePrivate, 0o600}} {
		if err := w.write(path, 1); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != w.mode {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
}

// A value that cannot be stored leaves the file as it was, and nothing beside it.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.json")
	for _, v := range []any{map[string]int{"a": 1}, math.NaN()} {
		err := Write(path, v)
		if _, fails := v.(float64); fails != (err != nil) {
			t.Errorf("%v: %v", v, err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{\n  \"a\": 1\n}\n" {
		t.Errorf("%q, %v", text, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
