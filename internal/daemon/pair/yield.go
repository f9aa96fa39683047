// SPDX-License-Identifier: Apache-2.0

package pair

import "time"

// Standing compares two views.
type Standing int

// Standings.
const (
	Unknown  Standing = iota // of one or both
	Same                     // both see as many, or see no server at all
	PeerLess                 // the peer sees fewer
	PeerMore
)

var standings = [...]string{"unknown", "as many", "fewer", "more"}

// String says how many servers the peer sees.
func (s Standing) String() string { return standings[s] }

// million is a whole service.
const million = 1_000_000

// score adds up the shares of the servers that are up, so that a service of two servers counts
// as much as one of a hundred. Services that one of the two does not have are left out.
func (v *View) score(o *View) (score int64) {
	for key, seen := range v.Services {
		if other, both := o.Services[key]; both && seen.Total > 0 && other.Total > 0 {
			score += int64(min(max(seen.Up, 0), seen.Total)) * million / int64(seen.Total)
		}
	}
	return score
}

// Compare says whether the peer sees more servers than this director. Without a view of one
// of the two that is unknown.
func Compare(own, peer *View) Standing {
	if own == nil || peer == nil {
		return Unknown
	}
	switch ours, theirs := own.score(peer), peer.score(own); {
	case theirs > ours:
		return PeerMore
	case theirs < ours:
		return PeerLess
	}
	return Same
}

// Yield decides whether a director leaves the service to its peer: once the peer has seen more
// servers for a time, until it has not for that time. Without the peer's view, as when the
// link is down, it does not yield: the peer may be dead. The zero value does not yield.
type Yield struct {
	Hold   time.Duration
	yields bool
	since  time.Time // when the contrary of yields began to hold; zero: it does not
}

// Next is whether it yields now. peerYields says that the peer does: the two must not both.
func (y *Yield) Next(now time.Time, s Standing, peerYields bool) bool {
	if s == Unknown {
		y.yields, y.since = false, time.Time{}
		return false
	}
	more := s == PeerMore && (y.yields || !peerYields)
	if more == y.yields {
		y.since = time.Time{}
		return y.yields
	}
	if y.since.IsZero() {
		y.since = now
	}
	if now.Sub(y.since) >= y.Hold {
		y.yields, y.since = more, time.Time{}
	}
	return y.yields
}
