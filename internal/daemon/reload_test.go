// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/daemon/config"
)

// Events, which every user may read, say where mistakes are, and not what is there.
func TestPublicErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "imbang.yaml")
	if err := os.WriteFile(file, []byte("services:\n  - {name: a b, virtual: 10.0.0.1:80}\n  - {name: c, virtual: secret}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(file)
	if got, want := public(err), "it has 2 mistakes, the first one at "+file+":2:12 (imbang status shows them to root and group imbang)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := public(errors.New("listener a: HAProxy: secret\nb")); strings.Contains(got, "secret") || !strings.HasPrefix(got, "listener a: HAProxy (") {
		t.Error(got)
	}
	if got := public(errors.New("a\nb")); got != "a; b" {
		t.Error(got)
	}
}
