// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/supervise"
)

// While HAProxy checks servers itself it says which are up; otherwise its word is the daemon's.
func TestFound(t *testing.T) {
	p := newProxy(t)
	if err := step(t, p.keeper(), of(web(100, "a"))); err != nil {
		t.Fatal(err)
	}
	if got := Found(t.Context(), p.dir); len(got) > 0 {
		t.Errorf("while the daemon checks: %v", got)
	}
	fallback := filepath.Join(supervise.Published(p.dir), supervise.Fallback)
	running := filepath.Join(p.dir, "running")
	if err := os.MkdirAll(fallback, 0o700); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(running)
	if err := os.Symlink(fallback, running); err != nil {
		t.Fatal(err)
	}
	want := map[l7.ServerID]l7.Health{{Backend: "web", Server: "a"}: l7.Up, {Backend: "web", Server: "b"}: l7.Down, {Backend: "web", Server: "BACKEND"}: l7.Up}
	if got := Found(t.Context(), p.dir); !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
