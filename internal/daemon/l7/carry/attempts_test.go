// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"imbang/internal/daemon/l7/supervise"
)

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}), 8000)
}

// Verdicts reach HAProxy when nothing else does: its own checks are off while the daemon is there.
func TestVerdictsAlone(t *testing.T) {
	p := newProxy(t)
	k := p.keeper()
	config := web(100, "a", "b")
	if err := step(t, k, of(config)); err != nil {
		t.Fatal(err)
	}
	// A file that HAProxy reads is gone when the node is drained, which takes a reload.
	bad := filepath.Join(p.dir, "bad")
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	drained := of(config)
	drained.Draining = true
	if err := step(t, k, drained); err == nil || !strings.Contains(err.Error(), "a file is missing") {
		t.Errorf("refused: %v", err)
	}
	p.took()
	down := of(config, "a")
	down.Draining = true
	if err := step(t, k, down); err == nil {
		t.Error("it is refused no more")
	}
	p.expect("a configuration that is refused", "set server web/a state maint")
	if s := lastSide(p.dir); s == nil || s.Draining || s.states()[down.id("a")] != down.States[down.id("a")] {
		t.Errorf("what HAProxy starts with next is %+v", s)
	}

	// No configuration can be published.
	base := filepath.Join(p.dir, "configurations")
	if err := os.Rename(base, base+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(base, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := step(t, k, of(config, "b")); err == nil {
		t.Error("published into a file")
	}
	p.expect("a full disk", "set server web/b state maint")
	_ = os.Remove(base)
	if err := os.Rename(base+".away", base); err != nil {
		t.Fatal(err)
	}

	// The program is gone. What HAProxy has already is not sent again.
	k.Program = filepath.Join(p.dir, "none")
	if err := step(t, k, of(config, "a", "b")); err == nil {
		t.Error("HAProxy without a program")
	}
	p.expect("no program", "set server web/a state maint")
	if err := step(t, k, of(config, "a", "b")); err == nil {
		t.Error("HAProxy without a program")
	}
	if said, _ := p.took(); len(said) > 0 {
		t.Errorf("sent again: %q", said)
	}
	k.Program = p.program
	_ = os.Remove(bad)
	if err := step(t, k, of(config, "a", "b")); err != nil {
		t.Error(err)
	}
}

// What keeps a reload from succeeding is tried again, unless it is the configuration.
func TestReloadFailsOnce(t *testing.T) {
	p := newProxy(t)
	k := p.keeper()
	if err := step(t, k, of(web(100, "a", "b"))); err != nil {
		t.Fatal(err)
	}
	other := of(web(200, "a", "b"))
	p.answers(supervise.Response{Error: "imbang proxy: HAProxy has ended by SIGKILL"})
	if err := step(t, k, other); err == nil || strings.Contains(err.Error(), "accept") {
		t.Errorf("while HAProxy was killed: %v", err)
	}
	p.answers(supervise.Response{})
	if err := step(t, k, other); err != nil || k.loaded.Config != other.Config {
		t.Errorf("afterwards: %v", err)
	}
}
