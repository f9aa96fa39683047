// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What one director of a pair alone has servers for does not hold up a barrier or a merge: these
// end with what is missing. The other director names it, with the number of entries.
func TestPairLacksServer(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	server := netip.AddrPortFrom(serverAddr(model.IPv4, 0), 8080)
	b.must(b.d.DeleteServer(s.Key, server))
	for i := range 20 {
		a.insert(connection(s, i)) // every other one of that server
	}
	one, _ := a.role(RolePair, b.addr)
	two, _ := b.role(RolePair, a.addr)
	awaitState(t, two, "ten wait", func(s State) bool { return s.Waiting == 10 && s.Master.Synced })
	awaitState(t, one, "it knows the services of the other one", synced)

	const name = "service 10.20.0.1:80/tcp server 172.16.0.10:8080"
	wait := func(what string, limit time.Duration, f func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		began, stalls := time.Now(), testenv.WatchStalls(t)
		err := f(ctx)
		if took := time.Since(began); took > limit+3*stalls.Longest() {
			t.Errorf("%s took %v, beside stalls of %v", what, took, stalls.Longest())
		}
		if err == nil || !strings.Contains(err.Error(), "10 entries") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wait("a merge", 1400*time.Millisecond, one.Merge)
	wait("a barrier", 4*time.Second, func(ctx context.Context) error { _, err := one.Barrier(ctx); return err })
	began, stalls := time.Now(), testenv.WatchStalls(t)
	b.must(two.Merge(t.Context()))
	if took := time.Since(began); took > time.Second+3*stalls.Longest() {
		t.Errorf("a merge of the director that lacks the server took %v, beside stalls of %v", took, stalls.Longest())
	}
	if m := two.State().Missing; len(m) != 1 || m[0] != (Missing{"10.20.0.1:80/tcp", "172.16.0.10:8080", 10}) {
		t.Errorf("missing are %+v", m)
	}
	if l := one.State().Receivers; len(l) != 1 || l[0].Lacking != 10 || len(l[0].Missing) != 1 || l[0].Missing[0] != name {
		t.Errorf("the other director is %+v", l)
	}

	b.must(b.d.AddServer(s.Key, model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}))
	_, err := one.Barrier(t.Context())
	if errors.Is(err, ErrLacking) && stalls.Longest() > 500*time.Millisecond { // it tries for 2.5 s
		_, err = one.Barrier(t.Context())
	}
	a.must(err)
	if m := two.State().Missing; len(m) != 0 {
		t.Errorf("missing are %+v", m)
	}
	wantEqual(a, b, "after the server was added")
}

// Connections of a server that was deleted at both directors live on where they are, and are
// nothing that the other one lacks.
func TestPairDeletedAtBoth(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	server := netip.AddrPortFrom(serverAddr(model.IPv4, 0), 8080)
	for i := range 20 {
		a.insert(connection(s, i)) // every other one of that server
	}
	b.must(b.d.DeleteServer(s.Key, server))
	one, _ := a.role(RolePair, b.addr)
	two, _ := b.role(RolePair, a.addr)
	awaitState(t, two, "ten lack", func(s State) bool { return s.Lacking == 10 && s.Master.Synced })
	a.must(a.d.DeleteServer(s.Key, server))
	awaitState(t, two, "none lack", func(s State) bool { return s.Waiting == 10 && s.Lacking == 0 && len(s.Missing) == 0 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := one.Barrier(ctx)
	a.must(err)
	a.must(one.Merge(ctx))
	a.must(a.d.AddServer(s.Key, model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}))
	awaitState(t, two, "ten lack again", func(s State) bool { return s.Lacking == 10 })
}

// An entry that waits counts no longer than its connection lives: not when it has expired, nor
// when the other director does not have it any more, having been out of reach when it ended.
func TestPairLacksForNoLonger(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	server := netip.AddrPortFrom(serverAddr(model.IPv4, 0), 8080)
	b.must(b.d.DeleteServer(s.Key, server))
	a.insert(connection(s, 0))
	one, stop := a.role(RolePair, b.addr)
	two, _ := b.role(RolePair, a.addr)
	awaitState(t, two, "one waits", func(s State) bool { return s.Lacking == 1 && s.Master.Synced })
	awaitState(t, one, "the other one lacks it", func(s State) bool { return len(s.Receivers) == 1 && s.Receivers[0].Lacking == 1 })
	stop()
	a.must(a.d.Set(noServer))
	a.must(a.d.DeleteServer(s.Key, server))
	for deadline := time.Now().Add(patience); len(a.table()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the connection does not end")
		}
	}
	a.must(a.d.AddServer(s.Key, model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}))
	one, _ = a.role(RolePair, b.addr)
	awaitState(t, two, "it ended at the other director", func(s State) bool { return s.Lacking == 0 && s.Master.Synced })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a.must(one.Merge(ctx))

	two.use()
	short := connection(s, 2)
	short.Expires = 2 * time.Second
	b.must(two.enter([]model.Connection{short}, false, false))
	waits := two.waiting.lacking()
	two.mu.Unlock()
	if waits != 1 {
		t.Errorf("%d entries wait", waits)
	}
	awaitState(t, two, "it has expired", func(s State) bool { return s.Lacking == 0 && s.Waiting == 1 })
}

// slowTable takes its time, and has no template.
type slowTable struct{ Table }

func (slowTable) Merge(entries []model.Connection, known bool) ([]error, director.Merged, error) {
	time.Sleep(100 * time.Millisecond)
	return slices.Repeat([]error{director.ErrNoTemplate}, len(entries)), director.Merged{}, nil
}

// Each time that an entry is tried again, it waits for no longer than before.
func TestWaitingEntryIsNotProlonged(t *testing.T) {
	r := idlePair(t, slowTable{})
	c := connection(services()[2], 0)
	c.Expires = 2 * time.Second
	r.use()
	defer r.mu.Unlock()
	err := r.enter([]model.Connection{c}, false, false)
	entered := time.Now()
	for range 3 {
		r.waiting.retryAll()
		at := time.Now()
		err = errors.Join(err, r.enterAt(at, r.waiting.again(at), true, false, false))
	}
	if err != nil {
		t.Fatal(err)
	}
	e := r.waiting.entries[c.Key()]
	if e == nil {
		t.Fatal("it does not wait")
	}
	if lives := e.expires.Sub(entered); lives > c.Expires {
		t.Errorf("an entry of %v waits for %v", c.Expires, lives)
	}
}
