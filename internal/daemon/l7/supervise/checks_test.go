// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Checks are made where another account sees nothing of them, and what a killed one has left is removed.
func TestChecks(t *testing.T) {
	dir := t.TempDir()
	if at := Checks(filepath.Join(dir, "none")); at != "" {
		t.Errorf("without a proxy: %s", at)
	}
	at := Checks(dir)
	info, err := os.Stat(at)
	if err != nil || at != filepath.Join(dir, "check") || info.Mode().Perm() != 0o700 {
		t.Fatalf("%s: %v, %v", at, info, err)
	}
	for name, age := range map[string]time.Duration{"left": 3 * time.Minute, "goes-on": time.Minute} {
		one := filepath.Join(at, name)
		if err := os.MkdirAll(filepath.Join(one, "certificates"), 0o700); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(one, then, then); err != nil {
			t.Fatal(err)
		}
	}
	if again := Checks(dir); again != at {
		t.Errorf("%s, %s", again, at)
	}
	entries, err := os.ReadDir(at)
	if err != nil || len(entries) != 1 || entries[0].Name() != "goes-on" {
		t.Errorf("%v, %v", entries, err)
	}
}
