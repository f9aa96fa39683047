// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

var errKilled = errors.New("killed")

// killedAt makes an edit end before its n-th write; it reports whether it came
// to that.
func (r *rig) killedAt(n int, edit func() error) bool {
	r.Helper()
	r.interrupt = func() error {
		if n--; n < 0 {
			return errKilled
		}
		return nil
	}
	err := edit()
	killed := errors.Is(err, errKilled)
	if err != nil && !killed {
		r.Fatal(err)
	}
	r.close() // and with it all that the command knew
	r.open(Sizes{})
	return killed
}

// killTable is a table for edits to be killed at.
func (r *rig) killTable() {
	r.Helper()
	r.must(r.Flush())
	for i, scheduler := range []string{"rr", "wrr", "dh", "sh", "mh", "lblc", "lblcr"} {
		r.addService(tcpService(nthVIP(i), scheduler), 3, 2, 1)
		r.syn(nthClient(i), nthVIP(i))
	}
}

// remembered is what schedulers remember of the lists, by service id.
func (r *rig) remembered() map[string]any {
	r.Helper()
	all := map[string]any{"buckets": r.elements(r.maps.BucketTables), "maglevs": r.elements(r.maps.Maglevs)}
	tab, err := r.load()
	r.must(err)
	for key, svc := range tab.services {
		if svc.Scheduler == bpfobj.LbSchedulerSCHED_WRR {
			var state bpfobj.LbServiceState
			r.must(r.maps.ServiceStates.Lookup(svc.Id, &state))
			state.Tree.Tag = 0          // another each time
			state.Climbers &= 1<<32 - 1 // how many are inside, not how many came
			all[fromKey(key).String()] = state
		}
	}
	return all
}

func (r *rig) elements(m *ebpf.Map) map[uint32]string {
	r.Helper()
	all := map[uint32]string{}
	var id uint32
	value := make([]byte, m.ValueSize())
	it := m.Iterate()
	for it.Next(&id, &value) {
		all[id] = string(value)
	}
	r.must(it.Err())
	return all
}

// Wherever in an edit a command is killed: each service is as before or as
// after, what schedulers remember is what they would learn anew, and the same
// edit can then be made.
func TestKilledEdits(t *testing.T) {
	r := newRig(t, small)
	key := func(i int) model.ServiceKey { return tcpService(nthVIP(i), "").Key }
	for _, c := range []struct {
		name string
		edit func() error
	}{
		{"add service", func() error { return r.AddService(tcpService(nthVIP(9), "mh")) }},
		{"add server", func() error { return r.AddServer(key(3), realServer(7, 5)) }},
		{"add server to mh", func() error { return r.AddServer(key(4), realServer(7, 5)) }},
		{"add server to wrr", func() error { return r.AddServer(key(1), realServer(7, 5)) }},
		{"add servers beyond the slots", func() error {
			return r.Batch(func() error {
				return errors.Join(r.AddServer(key(3), realServer(7, 5)), r.AddServer(key(3), realServer(8, 5)))
			})
		}},
		{"edit server", func() error { return r.EditServer(key(4), realServer(0, 9)) }},
		{"weight of a server", func() error { return r.SetWeight(key(4), realServer(0, 0).AddrPort(), 9) }},
		{"health of a server", func() error { return r.SetHealth(key(1), realServer(0, 0).AddrPort(), model.Down) }},
		{"delete server", func() error { return r.DeleteServer(key(3), realServer(0, 0).AddrPort()) }},
		{"delete server of dh", func() error { return r.DeleteServer(key(2), realServer(1, 0).AddrPort()) }},
		{"delete service", func() error { return r.DeleteService(key(4)) }},
		{"delete lblc service", func() error { return r.DeleteService(key(5)) }},
		{"dh becomes sh", func() error { return r.EditService(tcpService(nthVIP(2), "sh")) }},
		{"mh becomes rr", func() error { return r.EditService(tcpService(nthVIP(4), "rr")) }},
		{"lblcr becomes wrr", func() error { return r.EditService(tcpService(nthVIP(6), "wrr")) }},
		{"flags", func() error { s := tcpService(nthVIP(3), "sh"); s.Flags = model.SchedFlag1; return r.EditService(s) }},
		{"zero", func() error { return r.Zero(nil) }},
		{"flush", func() error { return r.Flush() }},
		{"restore", func() error {
			return r.Batch(func() error {
				for i := 8; i < 12; i++ {
					if err := r.AddService(tcpService(nthVIP(i), []string{"wrr", "sh"}[i%2])); err != nil {
						return err
					}
					for n := range 6 {
						if err := r.AddServer(key(i), realServer(n, int32(n))); err != nil {
							return err
						}
					}
				}
				return r.AddServer(key(4), realServer(9, 1))
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.TB = t
			r.killTable()
			before := r.listing()
			r.must(c.edit())
			after := r.listing()
			writes := 0
			for ; ; writes++ {
				r.killTable()
				if !r.killedAt(writes, c.edit) {
					break
				}
				r.repaired(before, after, writes)
				if err := c.edit(); err != nil && !errors.Is(err, model.ErrServiceExists) &&
					!errors.Is(err, model.ErrServerExists) && !errors.Is(err, model.ErrNoService) && !errors.Is(err, model.ErrNoServer) {
					t.Errorf("killed before write %d, then again: %v", writes, err)
				}
				r.must(r.Flush())
			}
			if writes == 0 {
				t.Error("nowhere to be killed")
			}
		})
	}
}

// repaired checks the table that a command finds after one was killed.
func (r *rig) repaired(before, after map[model.ServiceKey]model.ServiceStatus, n int) {
	r.Helper()
	now := r.listing()
	all := map[model.ServiceKey]bool{}
	for _, table := range []map[model.ServiceKey]model.ServiceStatus{before, after, now} {
		for k := range table {
			all[k] = true
		}
	}
	for k := range all {
		was, had := before[k]
		will, has := after[k]
		is, found := now[k]
		old := had == found && cmp.Equal(was, is, ignoreTraffic)
		if !old && !(has == found && cmp.Equal(will, is, ignoreTraffic)) {
			r.Errorf("killed before write %d: %s is neither as before nor as after: %+v", n, k, is)
		}
	}
	if now, err := r.Generation(); err != nil || beingEdited(now) {
		r.Errorf("killed before write %d: nobody repaired it: generation %d, %v", n, now, err)
	}
	// The kernel's servers say the same as the lists.
	r.Director.table = nil
	tab, err := r.load()
	r.must(err)
	for id, s := range tab.servers {
		var kernel bpfobj.LbServer
		r.must(r.maps.Servers.Lookup(uint32(id), &kernel))
		if kernel != s {
			r.Errorf("killed before write %d: the kernel has %+v, the lists %+v", n, kernel, s)
		}
	}
	r.wantReplyOwners(tab, n)
	have := r.remembered()
	for _, svc := range tab.services {
		r.must(r.changed(*svc, bpfobj.LbChangeEventCHANGE_UNKNOWN, 0))
	}
	if diff := cmp.Diff(r.remembered(), have); diff != "" {
		r.Errorf("killed before write %d: schedulers remember something else (-want +got):\n%.2000s", n, diff)
	}
	of := map[uint32]uint32{} // incarnations of services
	for _, svc := range tab.services {
		of[svc.Id] = svc.Incarnation
	}
	states, err := lookupAll[bpfobj.LbServiceState](r.maps.ServiceStates, r.maps.ServiceStates.MaxEntries())
	r.must(err)
	for id, state := range states {
		incarnation, there := of[uint32(id)]
		if state.Tree.Tag != 0 && !there {
			r.Errorf("killed before write %d: a tree of service id %d is left, which is gone", n, id)
		}
		if there && state.Incarnation != incarnation {
			r.Errorf("killed before write %d: service id %d is incarnation %d, its memory of %d", n, id, incarnation, state.Incarnation)
		}
	}
	for id := range r.elements(r.maps.Maglevs) {
		if !r.scheduled(id, "mh") {
			r.Errorf("killed before write %d: the table of an mh service is left", n)
		}
	}
	for id := range r.elements(r.maps.BucketTables) {
		if !r.scheduled(id, "dh", "sh") {
			r.Errorf("killed before write %d: the buckets of a dh or sh service are left", n)
		}
	}
}

// wantReplyOwners expects one server to be marked for each address and port that the
// kernel knows, and no others.
func (r *rig) wantReplyOwners(tab *table, n int) {
	r.Helper()
	owners := map[bpfobj.LbEndpoint]uint32{}
	for id, s := range tab.servers {
		if !ownsReplies(s) {
			continue
		}
		if other, twice := owners[placeAt(s)]; twice {
			r.Errorf("killed before write %d: ids %d and %d both own the replies of %s", n, other, id, fromKey(s.Owner))
		}
		owners[placeAt(s)] = uint32(id)
	}
	if diff := cmp.Diff(owners, r.replyOwners()); diff != "" {
		r.Errorf("killed before write %d: the kernel knows other servers by their addresses (-marked +known):\n%s", n, diff)
	}
}

// A batch gives the id of a server whose replies another claims to a third, with the
// address and port of one whose id it gives away, too. Wherever it is killed, one
// server owns the replies of each address and port.
func TestKilledReuseOfReplyOwners(t *testing.T) {
	r := newRig(t, Sizes{Services: 4, Servers: 3, Connections: 64})
	one, two := tcpService(nthVIP(0), "rr"), tcpService(nthVIP(1), "rr")
	for n := 0; ; n++ {
		r.must(r.Flush())
		r.addService(one, 1, 1, 1) // ids 0, 1 and 2
		r.must(r.Flush())
		r.reopen() // the lowest ids are given first
		killed := r.killedAt(n, func() error {
			return r.Batch(func() error {
				return errors.Join(r.AddService(two),
					r.AddServer(two.Key, realServer(2, 1)), // id 0, claims what id 2 had
					r.AddServer(two.Key, realServer(5, 1)), // id 1: none is left for server 1
					r.AddServer(two.Key, realServer(1, 1))) // id 2, claims that
			})
		})
		r.listing() // what was killed is repaired
		r.Director.table = nil
		tab, err := r.load()
		r.must(err)
		r.wantReplyOwners(tab, n)
		if !killed {
			for id, want := range []int{2, 5, 1} {
				if s := tab.servers[id]; s.Addr != toAddress(serverAddr(want)) || !ownsReplies(s) {
					t.Errorf("id %d is %s, with flags %#x; want server %d, which owns its replies", id, fromAddress(s.Addr), s.Flags, want)
				}
			}
			return
		}
	}
}

// Two servers are marked for one address and port, as earlier builds left them: the
// repair leaves the one that the kernel knows.
func TestRepairTwoReplyOwners(t *testing.T) {
	r := newRig(t, small)
	for i := range 3 { // server 0 of each, which the first owns
		r.addService(tcpService(nthVIP(i), "rr"), 1)
	}
	for known := range uint32(3) {
		for place := range r.replyOwners() {
			r.must(r.maps.ReplyOwners.Put(place, &bpfobj.LbReplyOwner{Server: known}))
		}
		for id := range uint32(3) {
			var s bpfobj.LbServer
			r.must(r.maps.Servers.Lookup(id, &s))
			s.Flags |= bpfobj.LbServerFlagSERVER_OWNS_REPLIES
			r.must(r.maps.Servers.Put(id, &s))
		}
		r.reopen()
		if !r.killedAt(0, func() error { return r.Zero(nil) }) {
			t.Fatal("not killed")
		}
		r.listing()
		r.Director.table = nil
		tab, err := r.load()
		r.must(err)
		r.wantReplyOwners(tab, 0)
		for id, s := range tab.servers {
			if ownsReplies(s) != (uint32(id) == known) {
				t.Errorf("the kernel knows id %d; id %d is marked: %t", known, id, ownsReplies(s))
			}
		}
	}
}

// replyOwners are the servers that the kernel knows by their addresses.
func (r *rig) replyOwners() map[bpfobj.LbEndpoint]uint32 {
	r.Helper()
	places, values, err := hashAll[bpfobj.LbEndpoint, bpfobj.LbReplyOwner](r.maps.ReplyOwners, hashBatch)
	r.must(err)
	all := map[bpfobj.LbEndpoint]uint32{}
	for i, at := range places {
		all[at] = values[i].Server
	}
	return all
}

// scheduled reports whether a service id has one of these schedulers.
func (r *rig) scheduled(id uint32, names ...string) bool {
	for _, svc := range r.Director.table.services {
		for _, name := range names {
			if svc.Id == id && schedulerName(svc.Scheduler) == name {
				return true
			}
		}
	}
	return false
}

// A command is killed between the service and its scheduler: clients go where
// they go if it is not.
func TestKilledBeforeTheScheduler(t *testing.T) {
	want := map[string]string{}
	for _, killed := range []bool{false, true} {
		r := newRig(t, small)
		for i, scheduler := range []string{"dh", "sh", "mh", "wrr"} {
			s := tcpService(nthVIP(i), scheduler)
			r.addService(s, 2, 1)
			edit := func() error { return r.AddServer(s.Key, realServer(10+i, 4)) }
			if !killed {
				r.must(edit())
			} else if !r.killedAt(5, edit) { // before the scheduler is called
				t.Fatal("not killed")
			}
			if got := len(r.status(s.Key).Servers); got != 3 {
				t.Fatalf("%s: %d servers", scheduler, got)
			}
			var to []netip.AddrPort
			for n := range 12 {
				to = append(to, r.syn(nthClient(100*i+n), nthVIP(i)))
			}
			if got := names(to); !killed {
				want[scheduler] = got
			} else if got != want[scheduler] {
				t.Errorf("%s: after a kill %s, without one %s", scheduler, got, want[scheduler])
			}
		}
	}
}

// A command is killed before the memory is there of what it adds: the next one can add that.
func TestKilledBeforeThePages(t *testing.T) {
	s := tcpService(vip, "rr")
	for n := range 3 {
		r := newRig(t, small)
		service := func() error { return r.AddService(s) }
		servers := func() error {
			return r.Batch(func() (err error) {
				for i := range 2 * pageIDs {
					if one := r.AddServer(s.Key, realServer(i%200, 1+int32(i/200))); !errors.Is(one, model.ErrServerExists) {
						err = errors.Join(err, one)
					}
				}
				return err
			})
		}
		for _, edit := range []func() error{service, servers} {
			if !r.killedAt(n, edit) {
				t.Fatalf("not killed before write %d", n)
			}
			if err := edit(); err != nil && !errors.Is(err, model.ErrServiceExists) {
				t.Errorf("killed before write %d, then again: %v", n, err)
			}
		}
		r.wantClean("again")
	}
}
