// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"imbang/internal/model"
)

// tableModel is what a table of services is, in the simplest words.
type tableModel map[model.ServiceKey]*modelService

type modelService struct {
	model.Service
	servers []model.Server // head first
}

func (m tableModel) addService(s model.Service) error {
	if m[s.Key] != nil {
		return model.ErrServiceExists
	}
	m[s.Key] = &modelService{Service: s}
	return nil
}

func (m tableModel) editService(s model.Service) error {
	if m[s.Key] == nil {
		return model.ErrNoService
	}
	m[s.Key].Service = s
	return nil
}

func (m tableModel) deleteService(k model.ServiceKey) error {
	if m[k] == nil {
		return model.ErrNoService
	}
	delete(m, k)
	return nil
}

// find returns the place of a server in a service's list, -1 if it is not
// there.
func (m tableModel) find(k model.ServiceKey, addr netip.AddrPort) (*modelService, int, error) {
	s := m[k]
	if s == nil {
		return nil, 0, model.ErrNoService
	}
	return s, slices.IndexFunc(s.servers, func(x model.Server) bool { return x.AddrPort() == addr }), nil
}

func (m tableModel) addServer(k model.ServiceKey, server model.Server) error {
	s, at, err := m.find(k, server.AddrPort())
	switch {
	case err != nil:
		return err
	case server.Lower > server.Upper:
		return model.ErrThresholdRange
	case at >= 0:
		return model.ErrServerExists
	}
	s.servers = slices.Insert(s.servers, 0, server)
	return nil
}

func (m tableModel) editServer(k model.ServiceKey, server model.Server) error {
	s, at, err := m.find(k, server.AddrPort())
	switch {
	case err != nil:
		return err
	case server.Lower > server.Upper:
		return model.ErrThresholdRange
	case at < 0:
		return model.ErrNoServer
	}
	s.servers[at] = server
	return nil
}

func (m tableModel) deleteServer(k model.ServiceKey, addr netip.AddrPort) error {
	s, at, err := m.find(k, addr)
	if err != nil {
		return err
	}
	if at < 0 {
		return model.ErrNoServer
	}
	s.servers = slices.Delete(s.servers, at, at+1)
	return nil
}

func (m tableModel) listing() map[model.ServiceKey]model.ServiceStatus {
	all := map[model.ServiceKey]model.ServiceStatus{}
	for k, s := range m {
		st := model.ServiceStatus{Service: s.Service}
		for _, server := range s.servers {
			st.Servers = append(st.Servers, model.ServerStatus{Server: server})
		}
		all[k] = st
	}
	return all
}

// Generators draw from few values, so that edits meet.
var (
	anyService = rapid.Custom(func(t *rapid.T) model.Service {
		key := model.MarkKey(3, model.IPv4)
		if i := rapid.IntRange(0, 6).Draw(t, "service"); i > 0 {
			key = model.AddrKey([]model.Protocol{model.TCP, model.UDP}[i%2], netip.MustParseAddrPort(nthVIP(i/2)))
		}
		return model.Service{Key: key, Netmask: model.FullMask(model.IPv4),
			Scheduler: rapid.SampledFrom(model.SchedulerNames()).Draw(t, "scheduler"),
			Flags:     rapid.SampledFrom([]model.ServiceFlags{0, model.SchedFlag1, model.SchedFlag2}).Draw(t, "flags")}
	})
	anyServer = rapid.Custom(func(t *rapid.T) model.Server {
		s := realServer(rapid.IntRange(0, 11).Draw(t, "server"), rapid.Int32Range(0, 9).Draw(t, "weight"))
		s.Upper = rapid.Uint32Range(0, 3).Draw(t, "upper")
		s.Lower = rapid.Uint32Range(0, 1).Draw(t, "lower")
		return s
	})
)

// Whatever edits come in whatever order: the director answers as the model
// does and holds what the model holds, in its own memory and in the kernel's.
func TestTableIsTheModel(t *testing.T) {
	r := newRig(t, small)
	rapid.Check(t, func(t *rapid.T) {
		r.must(r.Flush())
		m := tableModel{}
		same := func(got, want error) {
			t.Helper()
			if (got == nil) != (want == nil) || want != nil && !errors.Is(got, want) {
				t.Fatalf("the director says %v, the model %v", got, want)
			}
		}
		edits := map[string]func(*rapid.T){
			"add service": func(t *rapid.T) {
				s := anyService.Draw(t, "service")
				same(r.AddService(s), m.addService(s))
			},
			"edit service": func(t *rapid.T) {
				s := anyService.Draw(t, "service")
				same(r.EditService(s), m.editService(s))
			},
			"delete service": func(t *rapid.T) {
				k := anyService.Draw(t, "service").Key
				same(r.DeleteService(k), m.deleteService(k))
			},
			"add server": func(t *rapid.T) {
				k, s := anyService.Draw(t, "service").Key, anyServer.Draw(t, "server")
				same(r.AddServer(k, s), m.addServer(k, s))
			},
			"add servers": func(t *rapid.T) {
				k := anyService.Draw(t, "service").Key
				for i := range rapid.IntRange(1, 12).Draw(t, "number") {
					same(r.AddServer(k, realServer(i, 1)), m.addServer(k, realServer(i, 1)))
				}
			},
			"edit server": func(t *rapid.T) {
				k, s := anyService.Draw(t, "service").Key, anyServer.Draw(t, "server")
				same(r.EditServer(k, s), m.editServer(k, s))
			},
			"delete server": func(t *rapid.T) {
				k, s := anyService.Draw(t, "service").Key, anyServer.Draw(t, "server")
				same(r.DeleteServer(k, s.AddrPort()), m.deleteServer(k, s.AddrPort()))
			},
			"list": func(t *rapid.T) {
				if diff := cmp.Diff(m.listing(), r.listing(), ignoreTraffic); diff != "" {
					t.Fatalf("listing (-model +director):\n%s", diff)
				}
			},
		}
		actions := maps.Clone(edits)
		actions[""] = func(t *rapid.T) { r.compare(t, m) }
		actions["forget"] = func(*rapid.T) { r.Director.table = nil }
		actions["batch"] = func(t *rapid.T) {
			r.must(r.Batch(func() error {
				for range rapid.IntRange(1, 9).Draw(t, "edits") {
					edits[rapid.SampledFrom(slices.Sorted(maps.Keys(edits))).Draw(t, "edit")](t)
				}
				return nil
			}))
		}
		t.Repeat(actions)
	})
}

// compare holds the listing, from memory and from the kernel, against the
// model, and the slots against each other.
func (r *rig) compare(t *rapid.T, m tableModel) {
	t.Helper()
	if diff := cmp.Diff(m.listing(), r.listing(), ignoreTraffic); diff != "" {
		t.Fatalf("the director's listing (-model +director):\n%s", diff)
	}
	remembered := r.Director.table
	r.Director.table = nil
	if diff := cmp.Diff(m.listing(), r.listing(), ignoreTraffic); diff != "" {
		t.Fatalf("the kernel's table (-model +kernel):\n%s", diff)
	}
	if diff := cmp.Diff(r.Director.table.slots.free, remembered.slots.free, cmp.AllowUnexported(extent{})); diff != "" {
		t.Fatalf("free slots (-read +remembered):\n%s", diff)
	}
	r.Director.table = remembered
}

// extents never gives a slot twice, gives only slots there are, and has all
// of them again when all came back.
func TestExtents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 64
		x := extents{free: []extent{{0, slots}}}
		owner := make([]int, slots) // 0: free
		taken := map[int]extent{}
		next := 1
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				size := rapid.Uint32Range(1, 20).Draw(t, "size")
				first, err := x.take(size)
				if err != nil {
					if !errors.Is(err, model.ErrTableFull) || longestFree(owner) >= int(size) {
						t.Fatalf("refused %d slots: %v; owners %v", size, err, owner)
					}
					return
				}
				for i := first; i < first+size; i++ {
					if int(i) >= slots || owner[i] != 0 {
						t.Fatalf("gave %d slots at %d; owners %v", size, first, owner)
					}
					owner[i] = next
				}
				taken[next] = extent{first, size}
				next++
			},
			"give": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("nothing was taken")
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(taken))).Draw(t, "extent")
				giveBack(&x, taken, owner, id)
			},
			"give nothing": func(*rapid.T) { x.give(extent{}) },
		})
		for id := range maps.Clone(taken) {
			giveBack(&x, taken, owner, id)
		}
		if got := fmt.Sprint(x.free); got != fmt.Sprint([]extent{{0, slots}}) {
			t.Fatalf("all came back, free: %s", got)
		}
	})
}

func giveBack(x *extents, taken map[int]extent, owner []int, id int) {
	e := taken[id]
	for i := e.first; i < e.first+e.size; i++ {
		owner[i] = 0
	}
	delete(taken, id)
	x.give(e)
}

// longestFree is the longest run of slots without an owner.
func longestFree(owner []int) (longest int) {
	run := 0
	for _, o := range owner {
		if run++; o != 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}
