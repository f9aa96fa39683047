// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOneGroup(t *testing.T) {
	file, kept := filepath.Join(t.TempDir(), "enabled"), filepath.Join(t.TempDir(), "kept")
	oneGroup(file, kept)() // there is no such feature
	for _, before := range []string{"1\n", "0\n"} {
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		restore := oneGroup(file, kept)
		if got, _ := os.ReadFile(file); string(got) != "0\n" {
			t.Errorf("%q became %q", before, got)
		}
		restore()
		if got, _ := os.ReadFile(file); string(got) != before {
			t.Errorf("%q was restored as %q", before, got)
		}
	}

	if err := os.WriteFile(file, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	oneGroup(file, kept) // is killed
	oneGroup(file, kept)()
	if got, _ := os.ReadFile(file); string(got) != "1\n" {
		t.Errorf("after a run that was killed it is %q", got)
	}
	if _, err := os.Stat(kept); err == nil {
		t.Error("what it was is kept")
	}
}
