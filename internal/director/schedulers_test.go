// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"
	"testing"

	"imbang/internal/model"
)

// The descriptors of schedulers' maps are of maps, and of schedulers, that there
// are.
func TestMemories(t *testing.T) {
	spec, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Sizes{Services: 7, Servers: 8, Connections: 64})
	for _, m := range memories {
		kernel, want := m.of(&r.maps.LbMaps), spec.Maps[m.name]
		if want == nil || kernel.KeySize() != want.KeySize || kernel.ValueSize() != want.ValueSize || kernel.Type() != want.Type {
			t.Errorf("%s is %s, want %+v", m.name, kernel, want)
			continue
		}
		if m.perService && (kernel.KeySize() != 4 || kernel.MaxEntries() != 7) {
			t.Errorf("%s has room for %d keys of %d bytes, want one service id for each of 7 services", m.name, kernel.MaxEntries(), kernel.KeySize())
		}
		for _, name := range m.schedulers {
			if _, ok := model.SchedulerNamed(name); !ok {
				t.Errorf("%s is of %q, which is no scheduler", m.name, name)
			}
		}
	}
}

// Whatever a scheduler remembers in a map of its own goes with the service,
// with its scheduler, and with a server whose id another one gets.
func TestSchedulersForget(t *testing.T) {
	r := newRig(t, small)
	elements := func() (n int) {
		for _, m := range memories {
			n += r.entries(m.of(&r.maps.LbMaps))
		}
		return n
	}
	used := 0
	serve := func(scheduler string) model.Service {
		used++
		s := tcpService(nthVIP(used), scheduler)
		r.addService(s, 1, 1)
		r.syn(client1, nthVIP(used))
		return s
	}
	for _, m := range memories {
		for _, name := range m.schedulers {
			s, other := serve(name), serve(name)
			if n := r.entries(m.of(&r.maps.LbMaps)); n != 2 {
				t.Errorf("%s: %d elements of two services by %s", m.name, n, name)
			}
			changed := s
			changed.Scheduler = "twos" // which remembers nothing
			r.must(r.EditService(changed))
			if n := r.entries(m.of(&r.maps.LbMaps)); n != 1 {
				t.Errorf("%s: %d elements when one of two services by %s is by another scheduler", m.name, n, name)
			}
			r.must(r.DeleteService(other.Key), r.DeleteService(s.Key))
			if n := elements(); n != 0 {
				t.Errorf("%s: %d elements are left of services by %s", m.name, n, name)
			}
		}
	}
}

// A server's id is in no element when another server gets it.
func TestSchedulersForgetServers(t *testing.T) {
	r := newRig(t, small)
	for i, name := range model.SchedulerNames() {
		at := slices.IndexFunc(memories, func(m memory) bool { return slices.Contains(m.schedulers, name) })
		if at < 0 || memories[at].names == nil {
			continue
		}
		s := tcpService(nthVIP(i), name)
		r.addService(s, 1)
		r.syn(nthClient(i), nthVIP(i))
		tab, err := r.load()
		r.must(err)
		id := tab.order[tab.services[toKey(s.Key)].Id][0]
		for _, c := range []struct {
			gone map[uint32]bool
			want int
		}{{map[uint32]bool{id + 1: true}, 1}, {map[uint32]bool{id: true}, 0}} {
			r.must(r.forgetServers(c.gone))
			if n := r.entries(memories[at].of(&r.maps.LbMaps)); n != c.want {
				t.Errorf("%s: %d elements name server %d without %v, want %d", name, n, id, c.gone, c.want)
			}
		}
	}
}
