// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/binary"
	"time"
)

// ages says how old a datagram of the stream of a pair's director is: one that was sent again
// after a split says how long its entries had had no packet when it was made, and the later
// packet decides between entries of two directors. Datagrams have a time of the sender's clock
// [ms, since its session began]. The quickest one of the last 10 to 20 s tells the difference
// of the clocks, and the way of a datagram.
type ages struct {
	// quickest is the difference of a datagram's time [ms, modulo 2^32: the sender's wraps around
	// after 49.7 days]: in this window, and in the one before.
	quickest [2]uint32
	known    [2]bool
	since    time.Duration
	stood    stood
}

const (
	stampSize = 4
	ageWindow = 10 * time.Second
)

// stamp is a time as datagrams have it.
func stamp(now, started time.Duration) uint32 { return uint32((now - started) / time.Millisecond) }

func appendStamp(b []byte, s uint32) []byte { return binary.BigEndian.AppendUint32(b, s) }

// note takes a datagram that came now.
func (a *ages) note(now time.Duration, s uint32) {
	if !a.known[0] || now-a.since >= ageWindow {
		a.quickest[1], a.known[1] = a.quickest[0], a.known[0]
		a.known[0], a.since = false, now
	}
	took := took(now, s)
	if !a.known[0] || int32(took-a.quickest[0]) < 0 {
		a.quickest[0], a.known[0] = took, true
	}
	if a.known[1] {
		a.stood.note(now, time.Duration(int32(a.quickest[1]-a.quickest[0]))*time.Millisecond)
	}
}

// took is how much later by this clock something was sent than by the sender's [ms].
func took(now time.Duration, s uint32) uint32 { return uint32(now/time.Millisecond) - s }

// of is how long ago a datagram was made, more than others needed.
func (a *ages) of(now time.Duration, s uint32) time.Duration {
	quickest := a.quickest[0]
	if a.known[1] && int32(a.quickest[1]-quickest) < 0 {
		quickest = a.quickest[1]
	}
	// What is kept to be sent again is not as old as half of the time after which it wraps.
	return time.Duration(max(0, int32(took(now, s)-quickest))) * time.Millisecond
}
