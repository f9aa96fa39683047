// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"time"
)

// roles notices directors with which there is no session, since one is of a pair and the
// other one a master or a backup.
type roles struct {
	at      time.Duration
	started bool
}

// roleEvery is how often a datagram of another role is reported, and authenticated.
const roleEvery = time.Second

// differs handles a datagram of another role.
func (r *roles) differs(now time.Duration, sign *signer, from netip.AddrPort, b []byte, out *Output) Reason {
	if r.started && now-r.at < roleEvery {
		return ReasonRole
	}
	if !sign.verify(b) {
		return ReasonForged
	}
	r.at, r.started = now, true
	out.Events = append(out.Events, Event{Kind: EventOtherRole, Peer: from})
	return ReasonRole
}
