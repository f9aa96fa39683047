// SPDX-License-Identifier: Apache-2.0

package jsonfile

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

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
