// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// wantHeld checks that something does not end while a packet is stopped, lets the
// packet go on, and waits for it.
func (a *stopped) wantHeld(what string, fn func() error) {
	a.x.Helper()
	done := make(chan error, 1)
	go func() { done <- a.x.pinned(cpuB, fn) }()
	select {
	case err := <-done:
		a.x.Errorf("%s does not wait for a packet that is under way (%v)", what, err)
		a.finish()
		return
	case <-time.After(300 * time.Millisecond):
	}
	a.finish()
	a.x.must(<-done)
}

// A barrier waits for packets that are under way, wherever they are.
func TestBarrierWaits(t *testing.T) {
	for _, at := range []lbtest.LbHookPoint{lbtest.LbHookPointPOINT_SERVICE_FOUND, lbtest.LbHookPointPOINT_CHOOSE, lbtest.LbHookPointPOINT_CONN_OPEN} {
		x := newInterleaved(t)
		x.addService(tcpService(vip, "rr"), 1)
		_, err := x.Director.load()
		x.must(err)
		a, v := x.stopPacket(at, testenv.TCP(client1, vip, "S"))
		a.wantHeld("a barrier", x.barrier)
		if v.verdict != redirect {
			x.Errorf("the packet: %s", v.verdict)
		}
	}
}

// A command gives nothing away that another one retired while a packet knows it.
func TestQuarantineOfAnotherCommand(t *testing.T) {
	x := newInterleaved(t)
	old, fresh := tcpService(vip, "rr"), tcpService(otherVIP, "rr")
	x.addService(old, 1, 1)
	before := x.serviceOf(old.Key)
	a, v := x.stopPacket(lbtest.LbHookPointPOINT_CHOOSE, testenv.TCP(client1, vip, "S"))
	x.onCPU(cpuB, func() error { return x.DeleteService(old.Key) })
	x.reopen()
	x.onCPU(cpuB, func() error {
		return errors.Join(x.AddService(fresh), x.AddServer(fresh.Key, realServer(5, 1)), x.AddServer(fresh.Key, realServer(6, 1)))
	})
	after := x.serviceOf(fresh.Key)
	a.finish()
	if after.Id == before.Id || after.First == before.First {
		x.Errorf("the service %+v has what the deleted one had: %+v", after, before)
	}
	if v.verdict == redirect {
		if to, err := v.server(); err != nil || to.Addr() == serverAddr(5) || to.Addr() == serverAddr(6) {
			x.Errorf("the SYN goes to %s (%v)", to, err)
		}
	}
	x.wantSound("after the SYN")
}

// serviceOf is a service as the kernel's table has it.
func (r *rig) serviceOf(k model.ServiceKey) (svc bpfobj.LbService) {
	r.Helper()
	r.must(r.maps.Services.Lookup(toKey(k), &svc))
	return svc
}

// Edits cost a barrier when the account is full, not each.
func TestBarriersAreFew(t *testing.T) {
	r := newRig(t, small)
	s, other := tcpService(vip, "rr"), tcpService(otherVIP, "rr")
	r.addService(s, 1, 1)
	const cycles = 300
	for i := range cycles {
		r.must(r.AddServer(s.Key, realServer(5, 1)), r.DeleteServer(s.Key, realServer(5, 1).AddrPort()))
		if i%10 == 0 { // as separate commands do
			r.reopen()
		}
	}
	q, err := r.quarantineOf()
	r.must(err)
	if q.barriers > 2 {
		t.Errorf("%d barriers for %d servers that came and went", q.barriers, cycles)
	}
	had := q.barriers
	for range cycles {
		r.must(r.AddService(other), r.DeleteService(other.Key))
	}
	if q, err = r.quarantineOf(); err != nil || q.barriers > had+2 {
		t.Errorf("%d barriers for %d services that came and went (%v)", q.barriers-had, cycles, err)
	}
	if set, err := r.config(); err != nil || set.Services > cycles {
		t.Errorf("%d ids of services are in use (%v)", set.Services, err)
	}
}

// More retires at once than there is room to keep account of: whatever is free
// waits for a barrier.
func TestQuarantineOverflows(t *testing.T) {
	var q quarantine
	for i := range uint32(len(bpfobj.LbQuarantine{}.Extent)) {
		q.holdExtent(extent{8 * i, 4})
		q.holdService(i)
	}
	if v := q.value(); q.overflows() || v.All != 0 || int(v.Extents) != len(q.extents) || int(v.Services) != len(q.services) {
		t.Errorf("full: overflows %v, %d extents, %d services", q.overflows(), v.Extents, v.Services)
	}
	q.holdExtent(extent{})
	if q.overflows() {
		t.Error("an extent of no slots counts")
	}
	q.holdService(9999)
	if v := q.value(); !q.overflows() || v.All != 1 || v.Extents != 0 || v.Services != 0 {
		t.Errorf("too full: overflows %v, %+v", q.overflows(), v.All)
	}

	r := newRig(t, Sizes{Services: 1024, Servers: 1024, Connections: 1 << 10})
	r.must(r.Batch(func() (err error) {
		for i := range 300 {
			err = errors.Join(err, r.AddService(tcpService(nthVIP(i), "rr")))
		}
		return err
	}))
	r.must(r.Flush())
	r.reopen()
	if q, err := r.quarantineOf(); err != nil || !q.all {
		t.Errorf("after 300 services were deleted: %+v, %v", q, err)
	}
	r.must(r.AddService(tcpService(vip, "rr")))
	if q, err := r.quarantineOf(); err != nil || q.all || q.barriers != 1 {
		t.Errorf("after one was added: all %v, %d barriers, %v; want one", q.all, q.barriers, err)
	}
}

// An edit that is killed may have retired what no account has: the next one makes a
// barrier, whatever it needs.
func TestKilledEditIsFollowedByBarrier(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	for n := range 6 {
		if !r.killedAt(n, func() error { return r.DeleteServer(s.Key, realServer(0, 1).AddrPort()) }) {
			break
		}
		before, err := r.quarantineOf()
		r.must(err)
		now, err := r.Generation()
		r.must(err)
		marked := beingEdited(now)
		r.must(r.edit(func(*table) error { return nil }))
		after, err := r.quarantineOf()
		r.must(err)
		if marked && after.barriers == before.barriers {
			t.Errorf("killed at write %d: no barrier", n)
		}
		if r.status(s.Key); len(r.status(s.Key).Servers) < 2 {
			r.must(r.AddServer(s.Key, realServer(0, 1)))
		}
	}
}
