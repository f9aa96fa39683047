// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/daemon/config"
)

// Files that have changed are read once they are settled, and once.
func TestChangedFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "imbang.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "include: [\"more-*.yaml\"]\nservices: []\n")
	d := &Daemon{}
	load := func() {
		t.Helper()
		var err error
		if _, d.read, err = config.LoadSeen(file); err != nil {
			t.Fatal(err)
		}
	}
	load()
	begin := time.Now()
	at := func(after time.Duration, want bool) {
		t.Helper()
		if d.changed(begin.Add(after)) != want {
			t.Errorf("after %s: %v", after, !want)
		}
	}
	write(file, "include: [\"more-*.yaml\"]\n") // before the first look
	at(0, false)
	at(time.Second, false)
	write(filepath.Join(dir, "more-a.yaml"), "checks: {}\n")
	at(2*time.Second, false) // another change
	at(3*time.Second, false)
	at(4*time.Second, true)
	load()
	at(5*time.Second, false)
	at(9*time.Second, false)
	write(filepath.Join(dir, "more-b.yaml"), "checks: {}\n")
	at(10*time.Second, false)
	at(12*time.Second, true)
}
