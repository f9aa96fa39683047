// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package supervise

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// If HAProxy is not back soon, connections are refused: those who connect learn that it is gone.
func TestNotBack(t *testing.T) {
	n := newNode(t)
	n.host.Serve("a", "127.0.0.1:9001")
	n.start()
	dial := func() error {
		c, err := n.host.Dial(t.Context(), "tcp", "127.0.0.1:8080")
		if err == nil {
			c.Close()
		}
		return err
	}
	// It cannot start: neither with what is wanted nor with what it had.
	config := filepath.Join(n.dir, target(n.dir, running), ConfigFile)
	text, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, []byte("no configuration\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := syscall.Kill(n.status().HAProxy, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	if err := dial(); err != nil {
		t.Errorf("just after it was killed: %v", err)
	}
	n.await("connections are refused", func() bool { return errors.Is(dial(), syscall.ECONNREFUSED) })
	if took := time.Since(killed); took < holdTime {
		t.Errorf("after %v", took)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	n.await("HAProxy is back", func() bool { return n.status().Phase == Running && dial() == nil })
}
