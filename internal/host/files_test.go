// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"
)

// Only the directory itself is closed to others, not those made above it.
func TestMakeSecret(t *testing.T) {
	base := filepath.Join(t.TempDir(), "imbang")
	secret := filepath.Join(base, "proxy", "secret")
	for range 2 {
		if err := MakeSecret(secret); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{base: 0o755, filepath.Dir(secret): 0o755, secret: 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
			}
		}
	}
}
