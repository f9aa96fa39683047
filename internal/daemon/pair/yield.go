// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"slices"
	"time"
)

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

// bounds are between which numbers the sum of the shares of the servers that are up is: a
// service of two servers counts as much as one of a hundred, and one whose checks have not
// decided as nothing or as a whole one. Services that one of the two does not have are left out.
func (v *View) bounds(o *View) (least, most int64) {
	for key, seen := range v.Services {
		other, both := o.Services[key]
		if seen.Total > 0 && (both && other.Total > 0 || slices.Contains(o.Undecided, key)) {
			share := int64(min(max(seen.Up, 0), seen.Total)) * million / int64(seen.Total)
			least, most = least+share, most+share
		}
	}
	for _, key := range v.Undecided {
		if other, both := o.Services[key]; both && other.Total > 0 || slices.Contains(o.Undecided, key) {
			most += million
		}
	}
	return least, most
}

// Compare says whether the peer sees more servers than this director. That is unknown without a
// view of one of the two, and while it depends on checks that have not decided.
func Compare(own, peer *View) Standing {
	if own == nil || peer == nil {
		return Unknown
	}
	least, most := own.bounds(peer)
	theirLeast, theirMost := peer.bounds(own)
	switch {
	case theirLeast > most:
		return PeerMore
	case theirMost < least:
		return PeerLess
	case theirMost == least: // not more
		return Same
	}
	return Unknown
}

// Yield decides whether a director leaves the service to its peer: once the peer has seen more
// servers for a time, until it has not for that time. While the peer is reached, and a view of
// one of the two is unknown, it stays as it is: the daemon of one has just started, and an
// unknown view is not a worse one. Without the link it ends after the time: the peer may be
// dead. The zero value does not yield, and has not decided.
type Yield struct {
	Hold    time.Duration
	yields  bool
	decided bool
	next    bool      // what is about to hold
	since   time.Time // since when; zero: nothing is
}

// Decided reports whether views were known for long enough since the beginning. What an earlier
// process decided holds until then.
func (y *Yield) Decided() bool { return y.decided }

// Next is whether it yields now. peerYields says that the peer does: the two must not both.
func (y *Yield) Next(now time.Time, s Standing, reached, peerYields bool) bool {
	if s == Unknown && reached {
		y.since = time.Time{}
		return y.yields
	}
	more := s == PeerMore && (y.yields || !peerYields)
	if more == y.yields && y.decided {
		y.since = time.Time{}
		return y.yields
	}
	if y.since.IsZero() || y.next != more {
		y.next, y.since = more, now
	}
	if now.Sub(y.since) >= y.Hold {
		y.yields, y.decided, y.since = more, true, time.Time{}
	}
	return y.yields
}
