// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// schedulerName is the name of a scheduler in the kernel's tables.
func schedulerName(n bpfobj.LbScheduler) string {
	if s, ok := model.SchedulerNumbered(uint32(n)); ok {
		return s.Name
	}
	return "?"
}

// memory is a map in which schedulers remember something of each service that
// has them. What they remember in service_states needs no entry here: it is
// made anew when a service gets them.
type memory struct {
	name       string // of the map
	of         func(*bpfobj.LbMaps) *ebpf.Map
	schedulers []string // that share it, each other's elements included
	// perService: it has an element for each service at most, whose key is the
	// service's id, and room for as many.
	perService bool
	service    uintptr // offset of the service's id in a key
	// names finds servers among those that an element names. It is nil if
	// elements are made anew whenever the list changes.
	names func(element []byte, is func(server uint32) bool) bool
}

// memories are the maps that schedulers have of their own.
var memories = []memory{
	{
		name: "bucket_tables", of: func(m *bpfobj.LbMaps) *ebpf.Map { return m.BucketTables },
		schedulers: []string{"dh", "sh"}, perService: true,
	},
	{
		name: "maglevs", of: func(m *bpfobj.LbMaps) *ebpf.Map { return m.Maglevs },
		schedulers: []string{"mh"}, perService: true,
	},
	{
		name: "localities", of: func(m *bpfobj.LbMaps) *ebpf.Map { return m.Localities },
		schedulers: []string{"lblc"}, service: unsafe.Offsetof(bpfobj.LbLocalityKey{}.Service),
		names: func(element []byte, is func(uint32) bool) bool {
			return is(word(element, unsafe.Offsetof(bpfobj.LbLocality{}.Server)))
		},
	},
	{
		name: "locality_sets", of: func(m *bpfobj.LbMaps) *ebpf.Map { return m.LocalitySets },
		schedulers: []string{"lblcr"}, service: unsafe.Offsetof(bpfobj.LbLocalityKey{}.Service),
		names: func(element []byte, is func(uint32) bool) bool {
			const first = unsafe.Offsetof(bpfobj.LbLocalitySet{}.Server)
			count := word(element, unsafe.Offsetof(bpfobj.LbLocalitySet{}.Count))
			for i := range uintptr(count) {
				if is(word(element, first+4*i)) {
					return true
				}
			}
			return false
		},
	},
}

// word is the word at an offset of a key or value [bytes], in host byte order.
func word(b []byte, at uintptr) uint32 { return binary.NativeEndian.Uint32(b[at:]) }

// has reports whether a scheduler remembers something here.
func (m *memory) has(s bpfobj.LbScheduler) bool {
	return slices.Contains(m.schedulers, schedulerName(s))
}

// shareMemory reports whether two schedulers remember in one map, so that the
// second one's memory of a service lies where the first one's was.
func shareMemory(a, b bpfobj.LbScheduler) bool {
	return slices.ContainsFunc(memories, func(m memory) bool { return m.has(a) && m.has(b) })
}

// forgetAll removes all that schedulers remember, but in service_states.
func forgetAll(maps *bpfobj.LbMaps) error {
	for i := range memories {
		m := &memories[i]
		if err := deleteKeys(m.of(maps), func(_, _ []byte) bool { return true }); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// forgetStrays removes what schedulers remember for services that are gone or
// have another scheduler.
func (d *Director) forgetStrays(t *table) error {
	of := map[uint32]bpfobj.LbScheduler{}
	for _, svc := range t.services {
		of[svc.Id] = svc.Scheduler
	}
	if err := d.writing(); err != nil {
		return err
	}
	for i := range memories {
		m := &memories[i]
		err := deleteKeys(m.of(&d.maps.LbMaps), func(key, _ []byte) bool { return !m.has(of[word(key, m.service)]) })
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// forgetServers takes servers out of the schedulers' caches, whose entries
// would otherwise name the servers that get their ids.
func (d *Director) forgetServers(ids map[uint32]bool) error {
	if len(ids) == 0 {
		return nil
	}
	if err := d.writing(); err != nil {
		return err
	}
	for i := range memories {
		m := &memories[i]
		if m.names == nil {
			continue
		}
		err := deleteKeys(m.of(&d.maps.LbMaps), func(_, element []byte) bool {
			return m.names(element, func(id uint32) bool { return ids[id] })
		})
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// forgetServices removes what schedulers remember of services.
func (d *Director) forgetServices(services []bpfobj.LbService) error {
	for i := range memories {
		m, ids := &memories[i], map[uint32]bool{}
		for _, svc := range services {
			if m.has(svc.Scheduler) {
				ids[svc.Id] = true
			}
		}
		if err := m.forgetIDs(m.of(&d.maps.LbMaps), ids); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// forgetIDs removes the elements of services.
func (m *memory) forgetIDs(kernel *ebpf.Map, ids map[uint32]bool) error {
	if len(ids) == 0 {
		return nil
	}
	if !m.perService {
		return deleteKeys(kernel, func(key, _ []byte) bool { return ids[word(key, m.service)] })
	}
	for id := range ids {
		if err := deleteKey(kernel, id); err != nil {
			return err
		}
	}
	return nil
}
