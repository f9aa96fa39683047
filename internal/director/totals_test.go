// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// syns is what n SYNs are counted as.
func syns(n int) model.Stats {
	return model.Stats{Conns: uint64(n), InPkts: uint64(n), InBytes: 44 * uint64(n)}
}

// Totals go on over a zeroing, and begin with 0 for a service or server that gets
// an id that others had, which listings zero as well.
func TestTotals(t *testing.T) {
	r := newRig(t, Sizes{Services: 2, Servers: 4, Connections: 1 << 10})
	a, b := tcpService(nthVIP(0), "rr"), tcpService(nthVIP(1), "rr")
	want := func(what string, s model.Service, shown, total, serverShown, serverTotal int) {
		t.Helper()
		for range 2 {
			st := r.status(s.Key)
			if st.Stats != syns(shown) || st.Total != syns(total) {
				t.Errorf("%s: the service counts %+v, in total %+v; want %d and %d", what, st.Stats, st.Total, shown, total)
			}
			if got := st.Servers[0]; got.Stats != syns(serverShown) || got.Total != syns(serverTotal) {
				t.Errorf("%s: the server counts %+v, in total %+v; want %d and %d", what, got.Stats, got.Total, serverShown, serverTotal)
			}
			r.reopen()
		}
	}
	clients := 0
	open := func(vip string, n int) {
		t.Helper()
		for range n {
			r.syn(nthClient(clients), vip)
			clients++
		}
	}
	r.addService(a, 1)
	r.addService(b, 1, 1, 1)
	id := func(s model.Service) (svc bpfobj.LbService) {
		r.must(r.maps.Services.Lookup(toKey(s.Key), &svc))
		return svc
	}
	open(nthVIP(0), 3)
	want("at first", a, 3, 3, 3, 3)
	r.must(r.Zero(&a.Key))
	open(nthVIP(0), 2)
	want("zeroed", a, 2, 5, 2, 5)
	r.must(r.Zero(nil))
	want("all zeroed", a, 0, 5, 0, 5)
	open(nthVIP(0), 1)
	// A server that comes back with its connections goes on counting.
	at := realServer(0, 0).AddrPort()
	r.must(r.DeleteServer(a.Key, at), r.AddServer(a.Key, realServer(0, 1)))
	want("its server came back", a, 1, 6, 1, 6)
	// A service that is made again does not, nor do its servers, whichever of them gets the id.
	before := id(a)
	r.must(r.DeleteService(a.Key))
	r.addService(a, 1)
	if now := id(a); now.Id != before.Id {
		t.Fatalf("the service has id %d, had %d: the test is for one that is given again", now.Id, before.Id)
	}
	want("made again", a, 0, 0, 0, 0)
	open(nthVIP(0), 2)
	r.must(r.Zero(nil))
	want("made again and zeroed", a, 0, 2, 0, 2)
	// Another service with the id, and another server with a server's.
	r.timeouts(1, bpfobj.LbConnStateTCP_SYN_RECV)
	for i := range clients {
		r.fromClient(testenv.TCP(nthClient(i), nthVIP(0), "S"))
	}
	r.atLast(20e9, "connections end", func() bool { return r.tableEntries(0) == 0 })
	total := r.status(a.Key).Total
	if total.Conns < 2 {
		t.Errorf("in total %+v", total)
	}
	c := tcpService(nthVIP(2), "rr")
	r.must(r.DeleteService(a.Key), r.AddService(c), r.AddServer(c.Key, realServer(5, 1)))
	if now := id(c); now.Id != before.Id {
		t.Fatalf("the new service has id %d, want the id %d of the deleted one", now.Id, before.Id)
	}
	want("another with its ids", c, 0, 0, 0, 0)
	open(nthVIP(2), 4)
	want("another with its ids", c, 4, 4, 4, 4)
}

// Under traffic, whatever is zeroed and edited, no total is ever less than before,
// nor less than what is shown since the last zeroing; and in the end nothing is
// missing.
func TestTotalsNeverDecrease(t *testing.T) {
	const threads, each = 2, 3000
	r := newRig(t, small)
	s := tcpService(vip, "wlc")
	r.addService(s, 1, 2, 3)
	stop, done := make(chan struct{}), make(chan error, 1)
	var read atomic.Int64
	go func() { done <- r.watchTotals(s, stop, &read) }()
	opened := 0
	func() {
		defer close(stop)
		for ; opened == 0 || read.Load() < 3 && opened < 4*threads*each; opened += threads * each {
			r.together(threads, each, func(thread, i int) testenv.Packet { return testenv.TCP(nthClient(opened+thread*each+i), vip, "S") })
		}
	}()
	r.must(<-done)
	if read.Load() < 3 {
		t.Errorf("the counters were read %d times during the traffic, want 3 or more", read.Load())
	}
	if got := r.status(s.Key); got.Total != syns(opened) {
		t.Errorf("in total %+v, want %d", got.Total, opened)
	}
}

// watchTotals reads the counters of a service of three servers until it is stopped,
// and zeroes and edits after each time.
func (r *rig) watchTotals(s model.Service, stop <-chan struct{}, read *atomic.Int64) error {
	var last model.ServiceStatus
	for ; ; read.Add(1) {
		select {
		case <-stop:
			return nil
		default:
		}
		all, err := r.Services()
		if err != nil {
			return err
		}
		now := all[0]
		if !atLeast(now.Total, last.Total) || !atLeast(now.Total, now.Stats) {
			return fmt.Errorf("the service counted %+v (%+v shown) after %+v", now.Total, now.Stats, last.Total)
		}
		for i, was := range last.Servers {
			if is := now.Servers[i]; !atLeast(is.Total, was.Total) || !atLeast(is.Total, is.Stats) {
				return fmt.Errorf("a server counted %+v (%+v shown) after %+v", is.Total, is.Stats, was.Total)
			}
		}
		last = now
		n := int(read.Load())
		at := realServer(n%3, 0).AddrPort()
		err = errors.Join(r.Zero(nil), r.SetWeight(s.Key, at, int32(1+n%4)), r.SetHealth(s.Key, at, model.Percent*model.Health(20*(n%4))))
		if err != nil {
			return err
		}
	}
}

// atLeast reports whether no counter of s is less than that of base.
func atLeast(s, base model.Stats) bool {
	return s.Conns >= base.Conns && s.InPkts >= base.InPkts && s.OutPkts >= base.OutPkts && s.InBytes >= base.InBytes && s.OutBytes >= base.OutBytes
}
