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
	} {
		if got := Compare(c.own, c.peer); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		mirrored := map[Standing]Standing{PeerMore: PeerLess, PeerLess: PeerMore, Same: Same, Unknown: Unknown}[c.want]
		if got := Compare(c.peer, c.own); got != mirrored {
			t.Errorf("%s, seen by the peer: %v, want %v", name, got, mirrored)
		}
	}
}

func TestYield(t *testing.T) {
	type step struct {
		at       int // [s]
		standing Standing
		peer     bool // yields
		want     bool
	}
	for name, steps := range map[string][]step{
		"after the hold":            {{0, PeerMore, false, false}, {4, PeerMore, false, false}, {5, PeerMore, false, true}, {60, PeerMore, false, true}},
		"not for an interruption":   {{0, PeerMore, false, false}, {3, Same, false, false}, {4, PeerMore, false, false}, {8, PeerMore, false, false}, {9, PeerMore, false, true}},
		"until the hold is over":    {{0, PeerMore, false, false}, {5, PeerMore, false, true}, {6, Same, false, true}, {8, PeerMore, false, true}, {9, PeerLess, false, true}, {13, Same, false, true}, {14, Same, false, false}},
		"not without the link":      {{0, PeerMore, false, false}, {5, PeerMore, false, true}, {6, Unknown, false, false}, {7, PeerMore, false, false}, {11, PeerMore, false, false}, {12, PeerMore, false, true}},
		"never for as many":         {{0, Same, false, false}, {100, Same, false, false}},
		"never for fewer":           {{0, PeerLess, false, false}, {100, PeerLess, false, false}},
		"not while the peer does":   {{0, PeerMore, true, false}, {10, PeerMore, true, false}, {11, PeerMore, false, false}, {16, PeerMore, false, true}},
		"a peer that does too late": {{0, PeerMore, false, false}, {5, PeerMore, false, true}, {6, PeerMore, true, true}},
	} {
		y := Yield{Hold: 5 * time.Second}
		for i, s := range steps {
			if got := y.Next(time.Unix(int64(s.at), 0), s.standing, s.peer); got != s.want {
				t.Errorf("%s: step %d: %v, want %v", name, i, got, s.want)
			}
		}
	}
}
