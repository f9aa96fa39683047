// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// A packet that is under way may hold a list of servers, a service's id or a
// server's id that an edit has just taken out of the tables. None of these is
// given to another before a barrier, which waits for such packets and costs
// milliseconds. So what retired is kept in quarantine, and the barrier comes when
// something of it is needed, or there is too much of it to keep account of.
//
// The account is in the kernel's table (struct quarantine), since another command
// may be the one that reuses. An edit that was killed may have left it incomplete:
// repair makes a barrier.

// quarantine is what may not be given to another yet.
type quarantine struct {
	barriers uint32
	extents  []extent // of order[]
	services []uint32 // ids
	all      bool     // whatever is free: there was no room for the account of it
	changed  bool     // the kernel does not know
}

// overflows reports whether the kernel's account has no room for all of it.
func (q *quarantine) overflows() bool {
	return q.all || len(q.extents) > len(bpfobj.LbQuarantine{}.Extent) || len(q.services) > len(bpfobj.LbQuarantine{}.Service)
}

func (q *quarantine) holdExtent(e extent) {
	if e.size > 0 {
		q.extents = append(q.extents, e)
		q.changed = true
	}
}

func (q *quarantine) holdService(id uint32) {
	q.services = append(q.services, id)
	q.changed = true
}

// holdsServer reports whether a retired server's id may still be known to a packet.
func (q *quarantine) holdsServer(s bpfobj.LbServer) bool { return s.Retired == q.barriers }

func (q *quarantine) value() (v bpfobj.LbQuarantine) {
	v.Barriers = q.barriers
	if q.overflows() {
		v.All = 1
		return v
	}
	v.Extents, v.Services = uint32(len(q.extents)), uint32(len(q.services))
	for i, e := range q.extents {
		v.Extent[i].First, v.Extent[i].Size = e.first, e.size
	}
	copy(v.Service[:], q.services)
	return v
}

// quarantineOf is the account that the kernel's table has.
func (d *Director) quarantineOf() (q quarantine, err error) {
	c, err := readConfig(d.maps.Config)
	if err != nil {
		return q, err
	}
	v := &c.Quarantine
	q = quarantine{barriers: v.Barriers, all: v.All != 0, services: slices.Clone(v.Service[:v.Services])}
	for _, e := range v.Extent[:v.Extents] {
		q.extents = append(q.extents, extent{e.First, e.Size})
	}
	return q, nil
}

// putQuarantine writes the account if it changed.
func (d *Director) putQuarantine() error {
	if d.table == nil || !d.table.quarantine.changed {
		return nil
	}
	v := d.table.quarantine.value()
	if err := editConfig(d.maps.Config, func(c *bpfobj.LbConfigTable) { c.Quarantine = v }); err != nil {
		return fmt.Errorf("the quarantine: %w", err)
	}
	d.table.quarantine.changed = false
	return nil
}

// barrier waits for the packets that are under way and ends the quarantine.
//
// It is an update of a map of maps: the kernel returns from that when no program
// runs any more that could have read the former value (maybe_wait_bpf_programs). A
// membarrier would do the same on most machines, but waits for nothing on one CPU,
// where real-time kernels preempt programs, and is refused with nohz_full.
func (d *Director) barrier() error {
	if err := waitForPackets(d.maps.Barriers); err != nil {
		return err
	}
	t := d.table
	for _, e := range t.quarantine.extents {
		t.slots.give(e)
	}
	for _, id := range t.quarantine.services {
		t.ids.give(id)
	}
	t.quarantine = quarantine{barriers: t.quarantine.barriers + 1, changed: true}
	return nil
}

// waitForPackets is that update, of the data plane's map of maps.
func waitForPackets(barriers *ebpf.Map) error {
	inner, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("wait for packets under way: %w", err)
	}
	defer inner.Close()
	if err := barriers.Put(uint32(0), inner); err != nil {
		return fmt.Errorf("wait for packets under way: %w", err)
	}
	return nil
}

// settled makes sure that no packet knows a retired server's id any more.
func (d *Director) settled(id uint32) error {
	if !d.table.quarantine.holdsServer(d.table.servers[id]) {
		return nil
	}
	return d.barrier()
}

// takeSlots hands out a range of order[] that no packet looks at.
func (d *Director) takeSlots(size uint32) (uint32, error) {
	t := d.table
	if t.quarantine.overflows() {
		if err := d.barrier(); err != nil {
			return 0, err
		}
	}
	first, err := t.slots.take(size)
	if err == nil || len(t.quarantine.extents) == 0 {
		return first, err
	}
	if err := d.barrier(); err != nil {
		return 0, err
	}
	return t.slots.take(size)
}

// takeServiceID hands out an id that no packet knows, and the incarnation that the
// service begins with.
func (d *Director) takeServiceID() (id, incarnation uint32, used bool, err error) {
	t, limit := d.table, d.maps.Services.MaxEntries()
	if t.quarantine.overflows() {
		if err := d.barrier(); err != nil {
			return 0, 0, false, err
		}
	}
	id, used, err = t.ids.take(limit)
	if err != nil && len(t.quarantine.services) > 0 {
		if err := d.barrier(); err != nil {
			return 0, 0, false, err
		}
		id, used, err = t.ids.take(limit)
	}
	if err != nil || !used {
		return id, 1, used, err
	}
	incarnation, err = d.nextIncarnation(id)
	return id, incarnation, used, err
}

// nextIncarnation is that of the next scheduler of services with an id.
func (d *Director) nextIncarnation(service uint32) (uint32, error) {
	// An edit that was killed may have left the id without memory.
	states, err := lookupSpan[bpfobj.LbServiceState](d.maps.ServiceStates, service, 1)
	if err != nil {
		return 0, fmt.Errorf("read the schedulers' memory: %w", err)
	}
	return states[0].Incarnation + 1, nil
}
