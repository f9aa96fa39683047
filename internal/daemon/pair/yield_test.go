// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"testing"
	"time"
)

func view(pairs ...int) *View {
	v := &View{Services: map[string]Seen{}}
	for i := 0; i < len(pairs); i += 2 {
		v.Services[string(rune('a'+i/2))] = Seen{pairs[i], pairs[i+1]}
	}
	return v
}

// undecided is a view with a service whose checks have not decided.
func undecided(key string, pairs ...int) *View {
	v := view(pairs...)
	delete(v.Services, key)
	v.Undecided = []string{key}
	return v
}

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		own, peer *View
		want      Standing
	}{
		"own unknown":                 {nil, view(1, 1), Unknown},
		"peer unknown":                {view(1, 1), nil, Unknown},
		"no services":                 {view(), view(), Same},
		"all up":                      {view(2, 2), view(2, 2), Same},
		"both blind":                  {view(0, 2), view(0, 2), Same},
		"peer more":                   {view(1, 2), view(2, 2), PeerMore},
		"peer fewer":                  {view(2, 2), view(1, 2), PeerLess},
		"other services":              {view(0, 2), &View{Services: map[string]Seen{"z": {2, 2}}}, Same},
		"a small service is as large": {view(100, 100, 0, 2), view(0, 100, 2, 2), Same},
		"half of a small one is more": {view(60, 100, 2, 2), view(100, 100, 1, 2), PeerLess},
		"other totals":                {view(2, 4), view(1, 2), Same},
		"damaged":                     {view(9, 2), view(-1, 2), PeerLess},
		"no checked server":           {view(0, 0), view(5, 5), Same},
		"peer undecided":              {view(0, 2), undecided("a"), Unknown},
		"both undecided":              {undecided("a"), undecided("a"), Unknown},
		"undecided of the peer alone": {view(2, 2), undecided("z", 2, 2), Same},
		"more even so":                {undecided("b", 0, 2, 0, 0, 0, 2), undecided("b", 2, 2, 0, 0, 2, 2), PeerMore},
		"nobody can see more":         {view(2, 2, 2, 2), undecided("b", 2, 2), Same},
		"nor as many":                 {view(2, 2, 2, 2), undecided("b", 1, 2), PeerLess},
	} {
		if got := Compare(c.own, c.peer); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		mirrored := map[Standing]Standing{PeerMore: PeerLess, PeerLess: PeerMore, Same: Same, Unknown: Unknown}[c.want]
		if c.own != nil && c.peer != nil && len(c.own.Undecided)+len(c.peer.Undecided) > 0 && c.want != PeerMore {
			continue // whether the peer sees more is certain for one of them alone
		}
		if got := Compare(c.peer, c.own); got != mirrored {
			t.Errorf("%s, seen by the peer: %v, want %v", name, got, mirrored)
		}
	}
}

func TestYield(t *testing.T) {
	const lost = Standing(-1) // unknown, as the peer is not reached
	type step struct {
		at       int // [s]
		standing Standing
		peer     bool // yields
		want     bool
	}
	for name, steps := range map[string][]step{
		"after the hold":             {{0, PeerMore, false, false}, {4, PeerMore, false, false}, {5, PeerMore, false, true}, {60, PeerMore, false, true}},
		"not for an interruption":    {{0, PeerMore, false, false}, {3, Same, false, false}, {4, PeerMore, false, false}, {8, PeerMore, false, false}, {9, PeerMore, false, true}},
		"until the hold is over":     {{0, PeerMore, false, false}, {5, PeerMore, false, true}, {6, Same, false, true}, {8, PeerMore, false, true}, {9, PeerLess, false, true}, {13, Same, false, true}, {14, Same, false, false}},
		"not without the link":       {{0, PeerMore, false, false}, {5, PeerMore, false, true}, {6, lost, false, true}, {10, lost, false, true}, {11, lost, false, false}, {12, PeerMore, false, false}, {16, PeerMore, false, false}, {17, PeerMore, false, true}},
		"while a view is unknown":    {{0, PeerMore, false, false}, {5, PeerMore, false, true}, {6, lost, false, true}, {9, Unknown, false, true}, {60, Unknown, false, true}, {61, PeerMore, false, true}, {62, Same, false, true}, {67, Same, false, false}},
		"an unknown view is no less": {{0, Unknown, false, false}, {60, Unknown, false, false}, {61, PeerMore, false, false}, {63, Unknown, false, false}, {64, PeerMore, false, false}, {68, PeerMore, false, false}, {69, PeerMore, false, true}},
		"never for as many":          {{0, Same, false, false}, {100, Same, false, false}},
		"never for fewer":            {{0, PeerLess, false, false}, {100, PeerLess, false, false}},
		"not while the peer does":    {{0, PeerMore, true, false}, {10, PeerMore, true, false}, {11, PeerMore, false, false}, {16, PeerMore, false, true}},
		"a peer that does too late":  {{0, PeerMore, false, false}, {5, PeerMore, false, true}, {6, PeerMore, true, true}},
	} {
		y := Yield{Hold: 5 * time.Second}
		for i, s := range steps {
			if got := y.Next(time.Unix(int64(s.at), 0), max(s.standing, Unknown), s.standing != lost, s.peer); got != s.want {
				t.Errorf("%s: step %d: %v, want %v", name, i, got, s.want)
			}
		}
	}
}

// Nothing is decided before views were known for the hold, or the peer was not reached for it.
func TestYieldDecided(t *testing.T) {
	for name, c := range map[string]struct {
		standing Standing
		reached  bool
		want     int // [s]; 0: never
	}{
		"more": {PeerMore, true, 5}, "as many": {Same, true, 5}, "no peer": {Unknown, false, 5}, "unknown": {Unknown, true, 0},
	} {
		y, decided := Yield{Hold: 5 * time.Second}, 0
		for at := range 60 {
			y.Next(time.Unix(int64(at), 0), c.standing, c.reached, false)
			if y.Decided() && decided == 0 {
				decided = at
			}
		}
		if decided != c.want {
			t.Errorf("%s: after %d s, want %d", name, decided, c.want)
		}
	}
}
