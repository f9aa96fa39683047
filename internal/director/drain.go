// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Drain lets a server have no new connections: not by its scheduler, not by a
// persistence template, and not by a SYN from the port of an earlier connection. Those
// that it has go on. After the deadline, from now on (0: never), the next packet of a TCP
// connection is answered with a reset, and a datagram is scheduled anew. The order
// holds until EndDrain, or until the server is deleted; another one replaces it.
func (d *Director) Drain(k model.ServiceKey, addr netip.AddrPort, deadline time.Duration) error {
	if deadline < 0 {
		return fmt.Errorf("service %s: server %s: %w: deadline %s", k, addr, model.ErrInvalid, deadline)
	}
	now, err := monotonic()
	if err != nil {
		return err
	}
	until := uint64(0)
	if deadline > 0 {
		until = now + uint64(deadline)
	}
	return d.setDrain(k, addr, func(s *bpfobj.LbServer) {
		s.Flags |= bpfobj.LbServerFlagSERVER_DRAINING
		s.DrainUntil = until
	})
}

// EndDrain lets a server have new connections again, as far as its weight and health
// allow.
func (d *Director) EndDrain(k model.ServiceKey, addr netip.AddrPort) error {
	return d.setDrain(k, addr, func(s *bpfobj.LbServer) {
		s.Flags &^= bpfobj.LbServerFlagSERVER_DRAINING
		s.DrainUntil = 0
	})
}

// setDrain counts draining servers along: packets look at a reply's server only if there
// are some.
func (d *Director) setDrain(k model.ServiceKey, addr netip.AddrPort, change func(*bpfobj.LbServer)) error {
	return d.editNow(func(t *table) error {
		return d.reweighIn(t, k, addr, t.counted(change))
	})
}

// counted is a change of a server that the table's totals follow.
func (t *table) counted(change func(*bpfobj.LbServer)) func(*bpfobj.LbServer) {
	return func(s *bpfobj.LbServer) {
		t.total.states(*s, -1)
		change(s)
		t.total.states(*s, 1)
	}
}

// states counts what packets must know of servers as long as there is one of them.
func (s *summary) states(server bpfobj.LbServer, n int) {
	if draining(server) {
		s.draining += uint32(n)
	}
	if server.SlowStart != 0 {
		s.slowStarts += uint32(n)
	}
}

func draining(s bpfobj.LbServer) bool { return s.Flags&bpfobj.LbServerFlagSERVER_DRAINING != 0 }

// drainLeft is the time until a server's connections are reset; 0: it is over, or there
// is no deadline.
func drainLeft(s bpfobj.LbServer, now uint64) time.Duration {
	if !draining(s) || s.DrainUntil <= now {
		return 0
	}
	return time.Duration(s.DrainUntil - now)
}
