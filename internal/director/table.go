// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// table is what edits need to know of the maps, read once for each lock. It
// is pure: it plans, the Director writes.
type table struct {
	services map[bpfobj.LbServiceKey]*bpfobj.LbService
	order    map[uint32][]uint32 // by service id: server ids in order of addition
	servers  []bpfobj.LbServer   // by id; below the ids in use
	index    map[serverKey]uint32
	ids      []bool // service ids in use
	live     int    // servers in the lists
	slots    extents
}

// serverKey names a server of a service, alive or remembered.
type serverKey struct {
	owner bpfobj.LbServiceKey
	addr  bpfobj.LbAddress
	port  uint16
}

func keyOf(s bpfobj.LbServer) serverKey { return serverKey{s.Owner, s.Addr, s.Port} }

// never reports whether a server id was never used.
func never(s bpfobj.LbServer) bool { return s.Addr == (bpfobj.LbAddress{}) }

func available(s bpfobj.LbServer) bool {
	return s.Flags&bpfobj.LbServerFlagSERVER_AVAILABLE != 0
}

// load returns the table, reading it if this handle has not yet.
func (d *Director) load() (*table, error) {
	if d.table != nil {
		return d.table, nil
	}
	set, err := d.config()
	if err != nil {
		return nil, err
	}
	t := &table{
		services: map[bpfobj.LbServiceKey]*bpfobj.LbService{},
		order:    map[uint32][]uint32{},
		index:    map[serverKey]uint32{},
		ids:      make([]bool, set.Services),
	}
	if t.servers, err = lookupAll[bpfobj.LbServer](d.maps.Servers, set.Servers); err != nil {
		return nil, fmt.Errorf("read servers: %w", err)
	}
	for id, s := range t.servers {
		if !never(s) {
			t.index[keyOf(s)] = uint32(id)
		}
	}
	var key bpfobj.LbServiceKey
	var svc bpfobj.LbService
	top := uint32(0)
	it := d.maps.Services.Iterate()
	for it.Next(&key, &svc) {
		s := svc
		t.services[key] = &s
		// A command that was killed may not have come to summarise.
		for uint32(len(t.ids)) <= s.Id {
			t.ids = append(t.ids, false)
		}
		t.ids[s.Id] = true
		top = max(top, s.First+s.Capacity)
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read services: %w", err)
	}
	slots, err := lookupAll[uint32](d.maps.Order, top)
	if err != nil {
		return nil, fmt.Errorf("read the servers' order: %w", err)
	}
	listed := make([]bool, len(t.servers))
	for _, s := range t.services {
		t.order[s.Id] = slices.Clone(slots[s.First : s.First+s.Count])
		for _, id := range t.order[s.Id] {
			listed[id] = true
		}
		t.live += len(t.order[s.Id])
	}
	// The lists decide: a command that was killed between two writes may have
	// left a server marked that is in none, and then nothing could add it.
	for id := range t.servers {
		if !listed[id] {
			t.servers[id].Flags &^= bpfobj.LbServerFlagSERVER_AVAILABLE
		}
	}
	t.slots = usedExtents(t.services, d.maps.Order.MaxEntries())
	d.table = t
	return t, nil
}

// lookupAll reads the first n values of an array map.
func lookupAll[V any](m *ebpf.Map, n uint32) ([]V, error) {
	keys, values := make([]uint32, n), make([]V, n)
	var cursor ebpf.MapBatchCursor
	for read := 0; read < int(n); {
		got, err := m.BatchLookup(&cursor, keys[read:], values[read:], nil)
		read += got
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break // that was the last batch
		}
		if err != nil {
			return nil, err
		}
	}
	return values, nil
}

// service finds a service to edit.
func (t *table) service(k model.ServiceKey) (bpfobj.LbServiceKey, *bpfobj.LbService, error) {
	key := toKey(k)
	s, ok := t.services[key]
	if !ok {
		return key, nil, fmt.Errorf("service %s: %w", k, model.ErrNoService)
	}
	return key, s, nil
}

// freeServiceID is the smallest id that no service has.
func (t *table) freeServiceID(limit uint32) (uint32, error) {
	for id, used := range t.ids {
		if !used {
			return uint32(id), nil
		}
	}
	if uint32(len(t.ids)) >= limit {
		return 0, fmt.Errorf("%w: %d services (imbang attach --max-services makes room for more)", model.ErrTableFull, limit)
	}
	t.ids = append(t.ids, false)
	return uint32(len(t.ids) - 1), nil
}

// extents hands out ranges of slots in order[].
type extents struct {
	free []extent // sorted, not adjacent
}

type extent struct{ first, size uint32 }

// usedExtents finds what the services leave free.
func usedExtents(services map[bpfobj.LbServiceKey]*bpfobj.LbService, slots uint32) extents {
	var used []extent
	for _, s := range services {
		if s.Capacity > 0 {
			used = append(used, extent{s.First, s.Capacity})
		}
	}
	slices.SortFunc(used, func(a, b extent) int { return cmp.Compare(a.first, b.first) })
	var x extents
	at := uint32(0)
	for _, u := range append(used, extent{slots, 0}) {
		if u.first > at {
			x.free = append(x.free, extent{at, u.first - at})
		}
		at = u.first + u.size
	}
	return x
}

// take hands out the first range that fits.
func (x *extents) take(size uint32) (uint32, error) {
	for i := range x.free {
		f := &x.free[i]
		if f.size < size {
			continue
		}
		first := f.first
		f.first += size
		f.size -= size
		if f.size == 0 {
			x.free = slices.Delete(x.free, i, i+1)
		}
		return first, nil
	}
	return 0, fmt.Errorf("%w: no room for a list of %d servers (imbang attach --max-servers makes more)", model.ErrTableFull, size)
}

// give takes a range back and joins it with its neighbours.
func (x *extents) give(e extent) {
	if e.size == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(x.free, e, func(a, b extent) int { return cmp.Compare(a.first, b.first) })
	x.free = slices.Insert(x.free, i, e)
	if i+1 < len(x.free) && x.free[i].first+x.free[i].size == x.free[i+1].first {
		x.free[i].size += x.free[i+1].size
		x.free = slices.Delete(x.free, i+1, i+2)
	}
	if i > 0 && x.free[i-1].first+x.free[i-1].size == x.free[i].first {
		x.free[i-1].size += x.free[i].size
		x.free = slices.Delete(x.free, i, i+1)
	}
}
