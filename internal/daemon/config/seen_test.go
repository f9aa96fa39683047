// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"testing"
)

// Every change of a file that was read or would be read is noticed, and nothing else.
func TestSeen(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+".new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(dir, "imbang.yaml")
	none := func() {}
	for _, c := range []struct {
		name    string
		valid   bool
		before  func() // it is read
		after   func()
		changed bool
	}{
		{"nothing", true, func() { put("imbang.yaml", "include: [d/*.yaml, one.yaml]\n"); put("one.yaml", "checks: {}\n") }, none, false},
		{"the file", true, none, func() { put("imbang.yaml", "include: [d/*.yaml, one.yaml]\n") }, true},
		{"an included file", true, none, func() { put("one.yaml", "checks: {a: {tcp: {}}}\n") }, true},
		{"a new file", true, none, func() { put("d/a.yaml", "checks: {}\n") }, true},
		{"a file that no pattern has", true, none, func() { put("d/a.txt", "") }, false},
		{"a file that is wrong", false, func() { put("d/b.yaml", "wrong") }, none, false},
		{"and corrected", false, none, func() { put("d/b.yaml", "checks: {}\n") }, true},
		{"a file that is removed", true, none, func() { _ = os.Remove(filepath.Join(dir, "d/b.yaml")) }, true},
		{"an included file that is not there", false, func() { _ = os.Remove(filepath.Join(dir, "one.yaml")) }, none, false},
		{"and is made", false, none, func() { put("one.yaml", "checks: {}\n") }, true},
		{"a directory for a file", false, func() { _ = os.Mkdir(filepath.Join(dir, "d/c.yaml"), 0o700) }, none, false},
		{"a file that is not there", false, func() { _ = os.Remove(main) }, none, false},
		{"and is back", false, none, func() { put("imbang.yaml", "services: []\n") }, true},
	} {
		c.before()
		_, seen, err := LoadSeen(main)
		c.after()
		now := seen.Again()
		if (err == nil) != c.valid || now.Equal(seen) == c.changed || !now.Equal(seen.Again()) {
			t.Errorf("%s: %v; %+v, then %+v", c.name, err, seen.files, now.files)
		}
	}
}
