// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbang/internal/model"
)

func server(n int) ServerID {
	k := model.ServiceKey{Family: model.IPv4, Mark: 3}
	return id(k, fmt.Sprintf("172.16.0.%d:80", n))
}

func weighed(w int32, at time.Time) State {
	return State{Weight: &Weight{Order{By: "root", At: at}, w}}
}

// Whatever two directors order while they reach each other or do not, with clocks that differ
// by an hour: once they have exchanged ledgers both have the same orders, and nothing changes
// any more.
func TestLedgersConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sides := [2]*Ledger{NewLedger(), NewLedger()}
		sides[0].Origin, sides[1].Origin = "a", "b"
		clocks := [2]time.Time{time.Unix(1e9, 0), time.Unix(1e9, 0).Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "skew")) * time.Second)}
		exchange := func(from, to int) []ServerID {
			text, err := sides[from].Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			return sides[to].Merge(got, clocks[to].Sub(clocks[from]))
		}
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			for i := range clocks {
				clocks[i] = clocks[i].Add(time.Second)
			}
			side := rapid.IntRange(0, 1).Draw(t, "side")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				exchange(side, 1-side)
			case 1:
				sides[side].Order(server(rapid.IntRange(1, 3).Draw(t, "server")), State{}, clocks[side])
			default:
				sides[side].Order(server(rapid.IntRange(1, 3).Draw(t, "server")), weighed(int32(rapid.IntRange(0, 9).Draw(t, "weight")), clocks[side]), clocks[side])
			}
		}
		exchange(0, 1)
		exchange(1, 0)
		if sides[0].Digest() != sides[1].Digest() {
			t.Fatalf("%v and %v", sides[0].Entries, sides[1].Entries)
		}
		for i := range 2 {
			if changed := exchange(i, 1-i); changed != nil {
				t.Fatalf("%v changed again", changed)
			}
		}
		for n := 1; n <= 3; n++ {
			a, b := sides[0].Book()[server(n)].Weight, sides[1].Book()[server(n)].Weight
			if (a == nil) != (b == nil) || a != nil && a.Weight != b.Weight {
				t.Fatalf("server %d: %v and %v", n, a, b)
			}
		}
	})
}

// An order that was given later, by a director that had the former one, wins although its clock
// is an hour behind; its deadline is as far away by the other clock.
func TestNewestWinsWithoutClocks(t *testing.T) {
	a, b := NewLedger(), NewLedger()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	behind := now.Add(-time.Hour)
	a.Order(server(1), weighed(5, now), now)
	b.Merge(a, -time.Hour)
	b.Order(server(1), State{Drain: &Drain{Order{By: "op", At: behind}, behind.Add(time.Minute)}}, behind)
	if got := a.Merge(b, time.Hour); len(got) != 1 {
		t.Fatalf("%v", got)
	}
	got := a.Book()[server(1)]
	if got.Weight != nil || got.Drain == nil || !got.Drain.Deadline.Equal(now.Add(time.Minute)) || got.By() != "op" {
		t.Errorf("%+v", got)
	}
	a.Order(server(1), State{}, now)
	b.Merge(a, -time.Hour)
	if len(b.Book()) != 0 {
		t.Errorf("%+v", b.Book())
	}
	// A director that was down in between does not bring it back.
	old := NewLedger()
	old.Order(server(1), weighed(1, now.Add(-time.Hour)), now.Add(-time.Hour))
	if got := a.Merge(old, 0); got != nil || len(a.Book()) != 0 {
		t.Errorf("%v, %v", got, a.Book())
	}
}

// Orders of both sides of a split: the later one wins, however many the other side has given.
func TestLaterOrderOfASplitWins(t *testing.T) {
	a, b := NewLedger(), NewLedger()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for i := range 5 {
		a.Order(server(1), weighed(int32(i), now), now)
	}
	later := now.Add(time.Minute)
	b.Order(server(1), weighed(9, later), later)
	a.Merge(b, 0)
	b.Merge(a, 0)
	for _, l := range []*Ledger{a, b} {
		if got := l.Book()[server(1)].Weight; got == nil || got.Weight != 9 {
			t.Errorf("%+v", got)
		}
	}
	// A time that cannot be right does not make other orders of its director win.
	a.Entries[server(2)] = Entry{weighed(1, now), Version{Stamp: 1 << 47, Origin: "x"}}
	a.Order(server(1), weighed(3, now), now)
	if got := a.Entries[server(1)].Stamp; got != later.UnixMilli()+1 {
		t.Errorf("its time is %d", got)
	}
}

// A file of a former version is read, and the orders in it lose against any that has a time.
func TestFileWithoutVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "operator.json")
	const text = `{"version":1,"servers":[{"service":"10.20.0.1:80/tcp","server":"172.16.0.2:80","weight":{"by":"root","at":"2026-01-02T03:04:05Z","weight":7}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(path)
	if err != nil || len(l.Book()) != 1 || len(l.Origin) != 16 {
		t.Fatalf("%v, %v", l, err)
	}
	for id := range l.Entries {
		newer := NewLedger()
		newer.Order(id, State{}, time.Unix(0, 0))
		if got := l.Merge(newer, 0); len(got) != 1 || len(l.Book()) != 0 {
			t.Errorf("%v, %v", got, l.Book())
		}
	}
}

// Entries that say nothing are bounded, and those of configured servers and orders stay.
func TestPrune(t *testing.T) {
	l := NewLedger()
	for n := range 2 * maxEnded {
		l.Order(id(model.ServiceKey{Family: model.IPv4, Mark: uint32(n + 1)}, "172.16.0.9:80"), State{}, time.Unix(int64(n), 0))
	}
	l.Order(server(1), weighed(1, time.Unix(0, 0)), time.Unix(0, 0))
	kept := id(model.ServiceKey{Family: model.IPv4, Mark: 1}, "172.16.0.9:80")
	l.Prune(func(id ServerID) bool { return id == kept })
	_, last := l.Entries[id(model.ServiceKey{Family: model.IPv4, Mark: 2 * maxEnded}, "172.16.0.9:80")]
	_, there := l.Entries[kept]
	if len(l.Entries) != maxEnded+2 || !last || !there {
		t.Errorf("%d entries, the last one %v, the configured one %v", len(l.Entries), last, there)
	}
}
