// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// table is what edits need to know of the maps, read once for each generation
// that another process made. It is pure: it plans, the Director writes.
type table struct {
	services map[bpfobj.LbServiceKey]*bpfobj.LbService
	order    map[uint32][]uint32 // by service id: server ids in order of addition
	servers  []bpfobj.LbServer   // by id; below the ids in use
	// Ids by key, when it has been asked for that more than a few times.
	index       map[serverKey]uint32
	asked       int
	replyOwners map[bpfobj.LbEndpoint]uint32 // beside the index: of servers that own the replies of their address and port
	ids         idPool                       // of services
	live        int                          // servers in the lists
	slots       extents
	quarantine  quarantine
	total       summary // of services
	added       uint32  // the highest number that a server was given when it was added
	// Ids of retired servers without connections when they were looked at, and
	// of those retired since. It is looked when one is needed.
	spare   []uint32
	scanned time.Time
	// Ids of servers that were marked as being in a list and are in none: an
	// edit was killed, or is at work.
	unlisted []uint32
}

func (t *table) summary() summary {
	s := t.total
	s.services, s.servers = t.ids.top, uint32(len(t.servers))
	return s
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

// load returns the table, reading it if this handle has not yet. The lock is
// held. What a command left that was killed is repaired.
func (d *Director) load() (*table, error) {
	if d.table != nil {
		return d.table, nil
	}
	set, err := d.config()
	if err != nil {
		return nil, err
	}
	t, err := d.readTable(set)
	if err != nil {
		return nil, err
	}
	d.table, d.seen = t, set.Generation
	if beingEdited(set.Generation) {
		if err := d.finish(d.repair(t, t.unlisted)); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// errTorn says that lists and services do not fit together. Without the lock that
// may be for an edit meanwhile.
var errTorn = errors.New("the pinned table is damaged (imbang detach removes it)")

// readTable reads the table that settings are of, and changes nothing.
func (d *Director) readTable(set bpfobj.LbSettings) (*table, error) {
	t := &table{
		services: map[bpfobj.LbServiceKey]*bpfobj.LbService{},
	}
	var err error
	if t.servers, err = lookupAll[bpfobj.LbServer](d.maps.Servers, set.Servers); err != nil {
		return nil, fmt.Errorf("read servers: %w", err)
	}
	keys, values, err := hashAll[bpfobj.LbServiceKey, bpfobj.LbService](d.maps.Services, set.InUse4+set.InUse6)
	if err != nil {
		return nil, fmt.Errorf("read services: %w", err)
	}
	ids := make([]uint32, len(keys))
	for i, key := range keys {
		t.services[key] = &values[i]
		ids[i] = values[i].Id
	}
	for key, svc := range t.services { // a hash that is written meanwhile may give a key twice
		t.total.count(key, 1)
		t.total.engine(svc, 1)
	}
	for _, s := range t.servers {
		if available(s) {
			t.total.states(s, 1)
		}
	}
	t.ids = usedIDs(ids, set.Services)
	if t.order, err = d.lists(values); err != nil {
		return nil, fmt.Errorf("read the servers' order: %w", err)
	}
	listed := make([]bool, len(t.servers))
	for _, s := range t.services {
		for _, id := range t.order[s.Id] {
			if id >= uint32(len(listed)) {
				return nil, errTorn
			}
			listed[id] = true
		}
		t.live += len(t.order[s.Id])
	}
	// The lists decide: a command that was killed between two writes may have
	// left a server marked that is in none, and then nothing could add it.
	for id := range t.servers {
		t.added = max(t.added, t.servers[id].Added)
		if !listed[id] && available(t.servers[id]) {
			t.servers[id].Flags &^= bpfobj.LbServerFlagSERVER_AVAILABLE
			t.unlisted = append(t.unlisted, uint32(id))
		}
	}
	t.slots = usedExtents(t.services, d.maps.Order.MaxEntries())
	if t.quarantine, err = d.quarantineOf(); err != nil {
		return nil, err
	}
	// A command that was killed may have reused what the account still has.
	t.quarantine.extents = slices.DeleteFunc(t.quarantine.extents, func(e extent) bool { return !t.slots.hold(e) })
	t.quarantine.services = slices.DeleteFunc(t.quarantine.services, func(id uint32) bool { return !t.ids.hold(id) })
	return t, nil
}

// hashBatch is how many elements of a hash one system call reads.
const hashBatch = 4096

// hashBucket is what one of the hash's buckets may hold, which has to go into
// one system call.
const hashBucket = 64

// hashAll reads a hash of about n elements.
func hashAll[K, V any](m *ebpf.Map, n uint32) (keys []K, values []V, err error) {
	size := min(max(n, hashBucket), hashBatch)
	k, v := make([]K, size), make([]V, size)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, k, v, nil)
		keys, values = append(keys, k[:n]...), append(values, v[:n]...)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return keys, values, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// lookupArray reads the first n values of an array map.
func lookupArray[V any](m *ebpf.Map, n uint32) ([]V, error) {
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

// find finds a server, alive or remembered.
func (t *table) find(k serverKey) (uint32, bool) {
	const few = 8 // less than which the index is not worth its making
	if t.asked++; t.asked <= few {
		for id := range t.servers {
			if s := &t.servers[id]; s.Port == k.port && s.Addr == k.addr && s.Owner == k.owner && !never(*s) {
				return uint32(id), true
			}
		}
		return 0, false
	}
	if t.index == nil {
		t.index = make(map[serverKey]uint32, len(t.servers))
		t.replyOwners = map[bpfobj.LbEndpoint]uint32{}
		for id, s := range t.servers {
			if !never(s) {
				t.index[keyOf(s)] = uint32(id)
			}
			if ownsReplies(s) {
				t.replyOwners[placeAt(s)] = uint32(id)
			}
		}
	}
	id, ok := t.index[k]
	return id, ok
}

// enter makes a new server known.
func (t *table) enter(id uint32) {
	if t.index != nil {
		t.index[keyOf(t.servers[id])] = id
	}
}

// strike makes one unknown whose id is to be another's.
func (t *table) strike(id uint32) {
	if t.index != nil {
		delete(t.index, keyOf(t.servers[id]))
	}
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

// idPool hands out the ids of services.
type idPool struct {
	top  uint32   // ids from here on were never used
	free []uint32 // below
}

// usedIDs finds what the used ones leave free; ids below top may have been
// used before.
func usedIDs(used []uint32, top uint32) idPool {
	for _, id := range used {
		top = max(top, id+1)
	}
	p := idPool{top: top}
	taken := make([]bool, top)
	for _, id := range used {
		taken[id] = true
	}
	for id := range slices.Backward(taken) {
		if !taken[id] {
			p.free = append(p.free, uint32(id))
		}
	}
	return p
}

// take hands out an id, and tells whether it was used before.
func (p *idPool) take(limit uint32) (id uint32, used bool, err error) {
	if n := len(p.free); n > 0 {
		id = p.free[n-1]
		p.free = p.free[:n-1]
		return id, true, nil
	}
	if p.top >= limit {
		return 0, false, fmt.Errorf("%w: %d services (imbang attach --max-services makes room for more)", model.ErrTableFull, limit)
	}
	p.top++
	return p.top - 1, false, nil
}

func (p *idPool) give(id uint32) { p.free = append(p.free, id) }

// hold takes an id out of the free ones, if it is one.
func (p *idPool) hold(id uint32) bool {
	i := slices.Index(p.free, id)
	if i >= 0 {
		p.free = slices.Delete(p.free, i, i+1)
	}
	return i >= 0
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

// hold takes a range out of the free ones, if it is free.
func (x *extents) hold(e extent) bool {
	i := slices.IndexFunc(x.free, func(f extent) bool { return f.first <= e.first && e.first+e.size <= f.first+f.size })
	if i < 0 {
		return false
	}
	f := x.free[i]
	x.free = slices.Delete(x.free, i, i+1)
	x.give(extent{f.first, e.first - f.first})
	x.give(extent{e.first + e.size, f.first + f.size - e.first - e.size})
	return true
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
