// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// staged is what the table has and the kernel has not yet: new services, and
// services that got servers.
type staged struct {
	services map[bpfobj.LbServiceKey]*stagedService
	inOrder  []*stagedService
	servers  []uint32 // ids
	reopen   []uint32 // those of them that may have reached a threshold before
	// Ids that were in use before: of services and servers, to count from
	// zero, and of servers, for the schedulers' caches to forget.
	usedServices, usedServers []uint32
	reused                    map[uint32]bool
	// Servers that are to own replies, those that are no longer, and where there
	// is none any more.
	owners, released []uint32
	struck           []bpfobj.LbEndpoint
}

// stagedService is a service whose value in the kernel, if it has one, is old.
type stagedService struct {
	key   bpfobj.LbServiceKey
	svc   *bpfobj.LbService // the table's
	fresh bool              // the kernel has none
	known uint32            // servers that the kernel's list has
	place extent            // of that list
}

func placeOf(svc *bpfobj.LbService) extent { return extent{svc.First, svc.Capacity} }

// stage makes a service wait to be written.
func (d *Director) stage(key bpfobj.LbServiceKey, svc *bpfobj.LbService) *stagedService {
	s := d.staged.services[key]
	if s == nil {
		s = &stagedService{key: key, svc: svc, known: svc.Count, place: placeOf(svc)}
		if d.staged.services == nil {
			d.staged.services = map[bpfobj.LbServiceKey]*stagedService{}
		}
		d.staged.services[key] = s
		d.staged.inOrder = append(d.staged.inOrder, s)
	}
	return s
}

// makeRoom stages a service with slots for another server. The slots that
// packets look at are not given away before the kernel has others.
func (d *Director) makeRoom(key bpfobj.LbServiceKey, svc *bpfobj.LbService) error {
	s, t := d.stage(key, svc), d.table
	if svc.Count < svc.Capacity {
		return nil
	}
	capacity := max(4, 2*svc.Capacity)
	first, err := d.takeSlots(capacity)
	if errors.Is(err, model.ErrTableFull) { // what waits may hold old slots
		if err := d.commit(); err != nil {
			return err
		}
		s = d.stage(key, svc)
		first, err = d.takeSlots(capacity)
	}
	if err != nil {
		return err
	}
	if now := placeOf(svc); now != s.place {
		t.slots.give(now)
	}
	svc.First, svc.Capacity = first, capacity
	return nil
}

// commit writes what waits, the services last: a packet sees each of them as
// it was or as it will be.
func (d *Director) commit() error {
	s := d.staged
	if len(s.inOrder) == 0 {
		return nil
	}
	d.staged = staged{}
	if err := d.commitPages(&s); err != nil {
		return err
	}
	if err := d.commitServers(&s); err != nil {
		return err
	}
	if err := d.commitSlots(s.inOrder); err != nil {
		return err
	}
	if err := d.commitServices(s.inOrder); err != nil {
		return err
	}
	for _, svc := range s.inOrder {
		if svc.place != placeOf(svc.svc) {
			d.table.quarantine.holdExtent(svc.place)
		}
	}
	return nil
}

// commitPages makes room in the kernel's tables.
func (d *Director) commitPages(s *staged) error {
	if err := d.writing(); err != nil {
		return err
	}
	var services []uint32
	var lists []extent
	for _, one := range s.inOrder {
		services = append(services, one.svc.Id)
		lists = append(lists, placeOf(one.svc))
	}
	return d.addPages(services, s.servers, lists)
}

func (d *Director) commitServers(s *staged) error {
	if err := d.forgetServers(s.reused); err != nil {
		return err
	}
	if err := d.rebase(s.usedServices, d.serviceTally().begin); err != nil {
		return err
	}
	if err := d.rebase(s.usedServers, d.serverTally().begin); err != nil {
		return err
	}
	if err := d.commitReplyOwners(s); err != nil {
		return err
	}
	if err := d.putServers(s.servers...); err != nil {
		return err
	}
	return d.reopen(s.reopen)
}

// commitSlots writes the lists where packets do not look yet: into other
// slots, or behind the last that a service counts.
func (d *Director) commitSlots(services []*stagedService) error {
	var slots, ids []uint32
	for _, s := range services {
		from := s.known
		if s.place != placeOf(s.svc) {
			from = 0
		}
		for i, id := range d.table.order[s.svc.Id][from:] {
			slots = append(slots, s.svc.First+from+uint32(i))
			ids = append(ids, id)
		}
	}
	return d.putSlots(slots, ids)
}

// commitServices shows packets the services, and tells their schedulers: of a
// new service before it is seen, of new servers behind.
func (d *Director) commitServices(services []*stagedService) error {
	keys, values := make([]bpfobj.LbServiceKey, len(services)), make([]bpfobj.LbService, len(services))
	for i, s := range services {
		keys[i], values[i] = s.key, *s.svc
		if !s.fresh {
			continue
		}
		empty := *s.svc
		empty.Count = 0
		if err := d.changed(empty, bpfobj.LbChangeEventCHANGE_INIT, 0); err != nil {
			return err
		}
	}
	if err := d.putServices(keys, values); err != nil {
		return err
	}
	for _, s := range services {
		if s.svc.Count == s.known {
			continue
		}
		if err := d.changed(*s.svc, bpfobj.LbChangeEventCHANGE_ADD, s.known); err != nil {
			return err
		}
	}
	return nil
}
