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

// flags are those of an entry.
func (n *node) flags(c model.Connection) model.ConnFlags {
	n.Helper()
	for got, err := range n.d.Connections(anyEntry) {
		n.must(err)
		if got.Client == c.Client && got.Virtual == c.Virtual && got.Template == c.Template {
			return got.Flags
		}
	}
	n.Fatalf("no entry of %s", c.Client)
	return 0
}

// Each director of a pair has the connections of both, those of the other one as replicas, and
// tells none of these. What ends at its director ends at both.
func TestPair(t *testing.T) {
	a, b := twoNodes(t, few)
	var lists [2][]model.Connection
	for _, s := range services() {
		for i := range 600 {
			c := connection(s, i)
			if c.Control != nil {
				lists[i%2] = append(lists[i%2], template(c))
			}
			lists[i%2] = append(lists[i%2], c)
		}
	}
	half := len(lists[0]) / 2
	a.insert(lists[0][:half]...)
	b.insert(lists[1][:half]...)
	one, _ := a.role(RolePair, b.addr)
	two, _ := b.role(RolePair, a.addr)
	wantEqual(a, b, "after joining")
	a.insert(lists[0][half:]...)
	b.insert(lists[1][half:]...)
	wantEqual(a, b, "after openings")
	if n := len(a.table()); n != len(lists[0])+len(lists[1]) {
		t.Errorf("%d entries of %d", n, len(lists[0])+len(lists[1]))
	}
	mine := lists[0][len(lists[0])-1]
	if a.flags(mine)&model.ConnReplica != 0 || b.flags(mine)&model.ConnReplica == 0 {
		t.Errorf("the flags are %v where it was opened, and %v", a.flags(mine).Names(), b.flags(mine).Names())
	}

	// It does not wait for the second after which a source without events calls.
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	quickest, stalls := time.Hour, testenv.WatchStalls(t)
	for range 4 {
		for _, r := range []*Replica{one, two} {
			start := time.Now()
			if err := r.Merge(ctx); err != nil {
				t.Fatal(err)
			}
			quickest = min(quickest, time.Since(start))
		}
	}
	if quickest > 300*time.Millisecond+3*stalls.Longest() {
		t.Errorf("merging took %v, beside stalls of %v", quickest, stalls.Longest())
	}
	if !one.Synced(began) || one.Synced(time.Now().Add(time.Hour)) {
		t.Error("what the other director had an hour from now is here, or what it had is not")
	}

	news := func(r *Replica) uint64 { c := r.State().Counts; return c.Entries - c.Refreshes }
	sent := [2]uint64{news(one), news(two)}
	time.Sleep(300 * time.Millisecond)
	for i, r := range []*Replica{one, two} {
		s := r.State()
		if now := news(r); now != sent[i] || sent[i] < uint64(len(lists[i])) {
			t.Errorf("%d sent %d entries of %d, then %d", i, sent[i], len(lists[i]), now)
		}
		if s.Lost != 0 || len(s.Alarms) != 0 || s.Conflicts.Kept+s.Conflicts.Replaced != 0 || s.Refused != 0 || !s.Master.Synced || len(s.Receivers) != 1 {
			t.Errorf("%d is %+v", i, s)
		}
	}

	// All connections of a server end at one director, which tells of its own ones alone.
	gone := services()[0]
	for _, n := range []*node{a, b} {
		n.must(n.d.Set(noServer))
		n.must(n.d.DeleteServer(gone.Key, serverOf(connection(gone, 0))))
	}
	wantEqual(a, b, "after ends")
	if left := len(a.table()); left != len(lists[0])+len(lists[1])-300 {
		t.Errorf("%d entries are left", left)
	}
}

// A director that comes back empty gets everything, and the other one keeps it, also what
// only the former one had had packets of.
func TestPairComesBackEmpty(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	for i := range 200 {
		a.insert(connection(s, i))
		b.insert(connection(s, 1000+i))
	}
	a.role(RolePair, b.addr)
	_, stop := b.role(RolePair, a.addr)
	wantEqual(a, b, "after joining")
	all := a.table()
	stop()
	b.flush()
	b.role(RolePair, a.addr)
	wantEqual(a, b, "after the return")
	if got := a.table(); !slices.Equal(got, all) {
		t.Errorf("%d entries of %d are left", len(got), len(all))
	}
	if c := connection(s, 1000); b.flags(c)&model.ConnReplica == 0 {
		t.Errorf("what the returned director got is its own: %v", b.flags(c).Names())
	}
}

// A pair does not work with another role, and says so.
func TestPairWithAnotherRole(t *testing.T) {
	a, b := twoNodes(t, few)
	one, _ := a.role(RolePair, b.addr)
	_, err := one.Barrier(t.Context())
	if !errors.Is(err, ErrNoPeer) {
		t.Error(err)
	}
	two, _ := b.role(Master, a.addr)
	for r, want := range map[*Replica]string{one: "10.7.0.2 does not have the role pair", two: "10.7.0.1 has the role pair, and this director the role master"} {
		awaitState(t, r, want, func(s State) bool {
			return slices.ContainsFunc(s.Alarms, func(a Alarm) bool { return a.Name == OtherRole && strings.HasPrefix(a.Text, want) })
		})
	}
}

var (
	anyEntry = director.ConnectionFilter{}
	noServer = director.Setting{Name: "expire_nodest_conn", Value: 1}
)

func serverOf(c model.Connection) netip.AddrPort { return c.RealServer }

// flush empties the table, as a machine that was started anew.
func (n *node) flush() {
	n.Helper()
	n.must(n.d.Set(noServer))
	n.must(n.d.SetReplicated(false))
	for _, s := range services() {
		for j := range 2 {
			n.must(n.d.DeleteServer(s.Key, netip.AddrPortFrom(serverAddr(s.Key.Family, j), 8080)))
			n.must(n.d.AddServer(s.Key, model.Server{Addr: serverAddr(s.Key.Family, j), Port: 8080, Weight: 1}))
		}
	}
	if left := n.table(); len(left) != 0 {
		n.Fatalf("%d entries are left", len(left))
	}
}
