// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOneGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "enabled")
	oneGroup(file)() // there is no such feature
	for _, before := range []string{"1\n", "0\n"} {
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		restore := oneGroup(file)
		if got, _ := os.ReadFile(file); string(got) != "0\n" {
			t.Errorf("%q became %q", before, got)
		}
		restore()
		if got, _ := os.ReadFile(file); string(got) != before {
			t.Errorf("%q was restored as %q", before, got)
		}
	}
}
