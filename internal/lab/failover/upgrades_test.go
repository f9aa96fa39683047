// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"os"
	"path/filepath"
	"testing"
)

// A program that is put in the place of another one leaves the file that runs as it is.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	from, to, place := filepath.Join(dir, "from"), filepath.Join(dir, "to"), filepath.Join(dir, "place")
	for name, text := range map[string]string{from: "old", to: "new"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := install(from, place); err != nil {
		t.Fatal(err)
	}
	running, err := os.Open(place)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if err := install(to, place); err != nil {
		t.Fatal(err)
	}
	was := make([]byte, 8)
	n, _ := running.Read(was)
	is, err := os.ReadFile(place)
	if err != nil || string(was[:n]) != "old" || string(is) != "new" {
		t.Errorf("%q, %q, %v", was[:n], is, err)
	}
	if info, err := os.Stat(place); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if err := install(filepath.Join(dir, "none"), place); err == nil {
		t.Error("a program that is not there")
	}
	if left, _ := filepath.Glob(place + ".*"); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
