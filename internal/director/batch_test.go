// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Servers that came together are scheduled as if each had come alone.
func TestBatchSchedulesAsSingleEdits(t *testing.T) {
	want := map[string]string{}
	for _, together := range []bool{false, true} {
		r := newRig(t, small)
		for i, scheduler := range model.SchedulerNames() {
			s := tcpService(nthVIP(i), scheduler)
			build := func() error {
				r.addService(s, 4, 6, 2)
				r.addService(tcpService(nthVIP(100+i), scheduler), 1)
				return r.AddServer(s.Key, realServer(3, 3)) // the list moves
			}
			if together {
				r.must(r.Batch(build))
			} else {
				r.must(build())
			}
			more := func() error {
				return errors.Join(r.AddServer(s.Key, realServer(4, 8)), r.AddServer(s.Key, realServer(5, 5)))
			}
			if together {
				r.must(r.Batch(more))
			} else {
				r.must(more())
			}
			var to []netip.AddrPort
			for n := range 30 {
				to = append(to, r.syn(nthClient(100*i+n), nthVIP(i)))
			}
			if got := names(to); scheduler == "twos" {
				continue // draws lots
			} else if !together {
				want[scheduler] = got
			} else if got != want[scheduler] {
				t.Errorf("%s: added together %s, one by one %s", scheduler, got, want[scheduler])
			}
		}
	}
}

// In a batch each edit is refused on its own, those before and after it stand,
// and packets see nothing before the end.
func TestBatch(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	err := r.Batch(func() error {
		r.must(r.AddService(s), r.AddServer(s.Key, realServer(0, 1)))
		if err := r.AddService(s); !errors.Is(err, model.ErrServiceExists) {
			t.Errorf("the same again: %v", err)
		}
		if err := r.AddServer(s.Key, realServer(0, 1)); !errors.Is(err, model.ErrServerExists) {
			t.Errorf("the same server again: %v", err)
		}
		var svc bpfobj.LbService
		if err := r.maps.Services.Lookup(toKey(s.Key), &svc); err == nil {
			t.Error("a packet sees the service already")
		}
		r.must(r.AddServer(s.Key, realServer(1, 1)))
		if got := r.servers(s.Key); got != "BA" { // a look makes it real
			t.Errorf("in the batch: servers %s, want BA", got)
		}
		r.must(r.AddServer(s.Key, realServer(2, 1)))
		return errors.New("enough")
	})
	if err == nil || err.Error() != "enough" {
		t.Errorf("the batch ends with %v", err)
	}
	r.reopen()
	if got := r.servers(s.Key); got != "CBA" {
		t.Errorf("servers %s, want CBA", got)
	}
}

// A table full to the last server, emptied and filled with others, and again
// with the first: no id is lost, no list is mixed up, no object inherits counts.
func TestTableFullAgainAndAgain(t *testing.T) {
	const services, each = 32, 8
	r := newRig(t, Sizes{Services: services, Servers: services * each, Connections: 64})
	fill := func(net byte) error {
		return r.Batch(func() error {
			for i := range services {
				s := service(model.UDP, fmt.Sprintf("10.20.%d.%d:53", net, i), "wrr")
				s.Flags = model.OnePacket // no id is held by a connection
				if err := r.AddService(s); err != nil {
					return err
				}
				for n := range each {
					if err := r.AddServer(s.Key, realServer(n, 1)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	for round, net := range []byte{1, 2, 1, 1} {
		r.must(fill(net))
		if err := r.AddService(tcpService("10.20.9.9:80", "rr")); !errors.Is(err, model.ErrTableFull) {
			t.Errorf("round %d: one more service: %v", round, err)
		}
		first := fmt.Sprintf("10.20.%d.0:53", net)
		if err := r.AddServer(service(model.UDP, first, "").Key, realServer(20, 1)); !errors.Is(err, model.ErrTableFull) {
			t.Errorf("round %d: one more server: %v", round, err)
		}
		to, err := r.fromClient(testenv.UDP(client1, first, "hello")).server()
		if err != nil || to.Addr() != serverAddr(each-1) {
			t.Errorf("round %d: the first packet goes to %s, %v", round, to, err)
		}
		r.reopen()
		all := r.listing()
		if len(all) != services {
			t.Errorf("round %d: %d services", round, len(all))
		}
		for k, s := range all {
			if len(s.Servers) != each || s.Servers[0].Addr != serverAddr(each-1) {
				t.Errorf("round %d: %s has %d servers", round, k, len(s.Servers))
			}
			want := model.Stats{}
			if k.Addr.As4()[3] == 0 {
				want = model.Stats{Conns: 1, InPkts: 1, InBytes: 33}
			}
			if s.Stats != want {
				t.Errorf("round %d: %s counted %+v, want %+v", round, k, s.Stats, want)
			}
		}
		r.must(r.Flush())
	}
}
