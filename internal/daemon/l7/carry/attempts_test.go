// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/testenv"
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

// While HAProxy goes on with the configuration before, it does the rest of what is wanted.
func TestFormer(t *testing.T) {
	p := newProxy(t)
	k := p.keeper()
	if err := step(t, k, of(web(100, "a", "b"))); err != nil {
		t.Fatal(err)
	}
	other := web(200, "a", "b")
	p.answers(supervise.Response{Error: "HAProxy does not accept it: a port is taken", Refused: true})
	p.took()
	for i := range 2 {
		number := k.Set(of(other, "a"))
		err := k.step(t.Context(), of(other, "a"))
		if !errors.As(err, new(*Former)) || !strings.Contains(err.Error(), "a port is taken") {
			t.Errorf("try %d: %v", i, err)
		}
		k.report(number, err)
		if err := k.Wait(t.Context(), number); !errors.As(err, new(*Former)) {
			t.Errorf("try %d is waited for: %v", i, err)
		}
		said, reloads := p.took()
		if want := 1 - i; reloads != want || slices.Contains(said, "set server web/a state maint") != (i == 0) {
			t.Errorf("try %d: %d reloads and %q", i, reloads, said)
		}
		if s := lastSide(p.dir); s == nil || s.Config.Engine.Streams != 100 || s.states()[other0] != of(other, "a").States[other0] {
			t.Errorf("try %d: what HAProxy starts with next is %+v", i, s)
		}
	}
	// The node cannot be drained, which takes a reload: that is not done.
	drained := of(other, "a")
	drained.Draining = true
	if err := step(t, k, drained); err == nil || errors.As(err, new(*Former)) {
		t.Errorf("a drain that is refused: %v", err)
	}
	// The port is free again.
	p.answers(supervise.Response{})
	for _, r := range k.refused {
		r.again = time.Now().Add(-time.Second)
	}
	if err := step(t, k, of(other, "a")); err != nil || k.loaded.Config != other {
		t.Errorf("later: %v", err)
	}
	// One that ends HAProxy is not tried again.
	p.answers(supervise.Response{Error: "HAProxy does not accept it: no root", Refused: true, Ended: true})
	last := web(300, "a", "b")
	if err := step(t, k, of(last)); err == nil || len(k.refused) == 0 {
		t.Errorf("HAProxy ends by it: %v", err)
	}
	for of, r := range k.refused {
		if of.config == last && !r.again.IsZero() {
			t.Errorf("HAProxy ends by it again at %v", r.again)
		}
	}
}

var other0 = l7.ServerID{Backend: "web", Server: "a"}

// Commands of a configuration that is refused then are taken back.
func TestFormerServers(t *testing.T) {
	p := newProxy(t)
	k := p.keeper()
	if err := step(t, k, of(web(100, "a", "b"))); err != nil {
		t.Fatal(err)
	}
	p.answers(supervise.Response{Error: "HAProxy does not accept it", Refused: true})
	if err := step(t, k, of(web(200, "a"))); !errors.As(err, new(*Former)) {
		t.Fatal(err)
	}
	if said, _ := p.took(); !slices.Contains(said, "set server web/b state maint") || p.maint["web/b"] {
		t.Errorf("after %q, b is out of use", said)
	}
}

// A daemon that has just begun goes back to what HAProxy has loaded, too.
func TestFormerOfAnother(t *testing.T) {
	p := newProxy(t)
	if err := step(t, p.keeper(), of(web(100, "a", "b", "c"), "c")); err != nil {
		t.Fatal(err)
	}
	k := p.keeper()
	p.mu.Lock()
	p.refuses = 200
	p.mu.Unlock()
	for range 2 {
		if err := step(t, k, of(web(200, "a", "b"), "a")); !errors.As(err, new(*Former)) {
			t.Fatalf("refused: %v", err)
		}
		s := lastSide(p.dir)
		if s == nil || s.Config.Engine.Streams != 100 {
			t.Fatalf("what HAProxy starts with next is %+v", s)
		}
		for server, want := range map[string]l7.Health{"a": l7.Down, "b": l7.Up, "c": l7.Down} {
			if got := s.states()[l7.ServerID{Backend: "web", Server: server}].Health; got != want {
				t.Errorf("%s is %v, want %v", server, got, want)
			}
		}
	}
}

// HAProxy may have been started again with the states of before.
func TestStartedAgain(t *testing.T) {
	p := newProxy(t)
	k := p.keeper()
	w := of(web(100, "a", "b"), "a")
	if err := step(t, k, w); err != nil {
		t.Fatal(err)
	}
	if k.strayed(t.Context(), false) {
		t.Error("HAProxy was started again")
	}
	p.mu.Lock()
	p.pid += 10
	p.phase = supervise.Starting
	clear(p.maint)
	p.mu.Unlock()
	if k.strayed(t.Context(), false) {
		t.Error("it is told while it starts")
	}
	p.mu.Lock()
	p.phase = supervise.Running
	p.mu.Unlock()
	if !k.strayed(t.Context(), true) || k.strayed(t.Context(), true) {
		t.Error("another process is told once")
	}
	if s := k.Status(); s.Restarts != 1 {
		t.Errorf("%d restarts are known", s.Restarts)
	}
	k.loaded = nil // as run does
	p.took()
	if err := step(t, k, w); err != nil {
		t.Fatal(err)
	}
	p.expect("another process", "set server web/a state maint")
}

// A daemon may end after it has published servers, and before HAProxy has them.
func TestNotCarried(t *testing.T) {
	p := newProxy(t)
	if err := step(t, p.keeper(), of(web(100, "a", "b"))); err != nil {
		t.Fatal(err)
	}
	k := p.keeper()
	if err := step(t, k, of(web(100, "a"))); err != nil { // by commands
		t.Fatal(err)
	}
	if _, reloads := p.took(); reloads != 1 {
		t.Errorf("%d reloads, want that of the start", reloads)
	}
	if err := step(t, p.keeper(), of(web(100, "a"))); err != nil {
		t.Fatal(err)
	}
	if _, reloads := p.took(); reloads != 0 {
		t.Errorf("%d reloads by a daemon that goes on", reloads)
	}
	last := p.keeper()
	if err := last.detect(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := of(web(100, "b"))
	files, err := last.render(w.Config, w)
	if err == nil {
		err = publish(p.dir, files)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := step(t, p.keeper(), w); err != nil {
		t.Fatal(err)
	}
	if _, reloads := p.took(); reloads != 1 {
		t.Errorf("%d reloads by a daemon after one that was killed", reloads)
	}
}

// A server is deleted also if HAProxy does not reply at first.
func TestDeletedLater(t *testing.T) {
	p := newProxy(t)
	k := p.keeper()
	if err := step(t, k, of(web(100, "a", "b", "c"))); err != nil {
		t.Fatal(err)
	}
	if err := step(t, k, of(web(100, "a"))); err != nil {
		t.Fatal(err)
	}
	deaf := func(is bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deaf = is
	}
	deaf(true)
	begin, stalls := time.Now(), testenv.WatchStalls(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // time for the other side to read the command
	defer cancel()
	k.delete(ctx)
	if took := time.Since(begin); took > 2*time.Second+2*stalls.Longest() {
		t.Errorf("without a reply it takes %v", took)
	}
	deaf(false)
	p.took()
	k.delete(t.Context())
	if said, _ := p.took(); !slices.Equal(said, []string{"del server web/b", "del server web/c"}) || len(k.deletes) > 0 {
		t.Errorf("afterwards: %q, left are %v", said, k.deletes)
	}
}

// A supervisor that does not reply is said, and keeps no verdict from HAProxy.
func TestSilent(t *testing.T) {
	p := newProxy(t)
	k := New(Options{Dir: p.dir, Program: p.program, Log: slog.New(slog.DiscardHandler)})
	defer k.Close()
	config := web(100, "a", "b")
	if err := k.Wait(t.Context(), k.Set(of(config))); err != nil {
		t.Fatal(err)
	}
	silent := make(chan struct{})
	p.mu.Lock()
	p.silent = silent
	p.mu.Unlock()
	defer close(silent)
	for end := time.Now().Add(time.Minute); !strings.Contains(k.Status().Problem, "does not reply"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the problem is %q", k.Status().Problem)
		}
	}
	p.took()
	begin := time.Now()
	k.Set(of(config, "a"))
	for {
		p.mu.Lock()
		done := p.maint["web/a"]
		p.mu.Unlock()
		if done {
			break
		}
		if time.Since(begin) > time.Minute { // the silence lasts until the test ends
			t.Fatal("the verdict does not reach HAProxy")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
