// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestSweepProxy(t *testing.T) {
	base := t.TempDir()
	ended, supervised, alone := filepath.Join(base, "1"), filepath.Join(base, "2"), filepath.Join(base, "3")
	for _, dir := range []string{ended, supervised, alone} {
		f, err := TakeProxy(dir)
		if err != nil {
			t.Fatal(err)
		}
		if dir == supervised {
			defer f.Close()
			if _, err := TakeProxy(dir); !errors.Is(err, ErrProxyRunning) {
				t.Errorf("taken twice: %v", err)
			}
		} else {
			f.Close()
		}
	}
	// HAProxy goes on without its supervisor.
	l, err := net.Listen("unix", ProxyMaster(alone))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sweepProxy(base)
	for dir, want := range map[string]bool{ended: false, supervised: true, alone: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v; it should be there: %v", filepath.Base(dir), err, want)
		}
	}
}
