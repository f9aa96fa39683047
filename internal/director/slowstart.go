// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// SetSlowStart sets the time in which a server that returns gets its fair share of its
// service's new connections, whatever the scheduler; 0: at once. A server returns when
// its effective weight becomes more than 0. One that is returning goes on with the new
// time. In whole milliseconds.
func (d *Director) SetSlowStart(k model.ServiceKey, addr netip.AddrPort, t time.Duration) error {
	slow, err := slowStart(t)
	if err != nil {
		return fmt.Errorf("service %s: server %s: %w", k, addr, err)
	}
	return d.editNow(func(t *table) error {
		svc, err := t.serviceOf(k)
		if err != nil {
			return err
		}
		at, err := t.serverOf(svc, k, addr)
		if err != nil {
			return err
		}
		next := at.server
		t.counted(func(s *bpfobj.LbServer) { s.SlowStart = slow })(&next)
		if next == at.server {
			return nil
		}
		t.servers[at.id] = next
		if err := d.putServer(at.id, next); err != nil {
			return err
		}
		return d.changed(svc, bpfobj.LbChangeEventCHANGE_UPDATE, at.position) // shares are the kernel's
	})
}

// slowStart is a slow start as the kernel has it [ms].
func slowStart(t time.Duration) (uint32, error) {
	if t < 0 || t > math.MaxInt32*time.Millisecond {
		return 0, fmt.Errorf("%w: slow start %s", model.ErrInvalid, t)
	}
	return uint32((t + time.Millisecond - 1) / time.Millisecond), nil
}

// ramp is how far a returning server is: its part of the fair share, above 0; 0: it does
// not return. From 1 on, the scheduler may still be kept from giving it more than that
// many times its share.
func ramp(s bpfobj.LbServer, now uint64) float64 {
	if s.RampSince == 0 || s.SlowStart == 0 || s.Weight == 0 {
		return 0
	}
	return max(float64(now-min(s.RampSince, now))/float64(s.SlowStart)/1e6, math.SmallestNonzeroFloat64)
}
