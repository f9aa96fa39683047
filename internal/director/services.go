// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// AddService adds a virtual service without servers.
func (d *Director) AddService(s model.Service) error {
	return d.edit(func(t *table) error {
		key := toKey(s.Key)
		if _, exists := t.services[key]; exists {
			return fmt.Errorf("service %s: %w", s.Key, model.ErrServiceExists)
		}
		var svc bpfobj.LbService
		if err := toService(s, &svc); err != nil {
			return fmt.Errorf("service %s: %w", s.Key, err)
		}
		id, incarnation, used, err := d.takeServiceID()
		if err != nil {
			return fmt.Errorf("service %s: %w", s.Key, err)
		}
		svc.Id, svc.Incarnation = id, incarnation
		d.stage(key, &svc).fresh = true
		if used {
			d.staged.usedServices = append(d.staged.usedServices, id)
		}
		t.services[key] = &svc
		t.total.count(key, 1)
		t.total.engine(&svc, 1)
		return nil
	})
}

// EditService replaces scheduler, flags and persistence; servers stay.
func (d *Director) EditService(s model.Service) error {
	return d.editNow(func(t *table) error {
		key, svc, err := t.service(s.Key)
		if err != nil {
			return err
		}
		next := *svc
		if err := toService(s, &next); err != nil {
			return fmt.Errorf("service %s: %w", s.Key, err)
		}
		old := *svc
		if old.Scheduler != next.Scheduler {
			// Packets that still schedule for the old one write nothing that
			// the new one reads.
			if next.Incarnation, err = d.nextIncarnation(svc.Id); err != nil {
				return fmt.Errorf("service %s: %w", s.Key, err)
			}
		}
		*svc = next
		t.total.engine(&old, -1)
		t.total.engine(&next, 1)
		if old.Scheduler == next.Scheduler {
			return d.putService(key, next)
		}
		// A packet must find the memory of the scheduler that it finds the
		// name of: the new one's comes first, the old one's goes last.
		if err := d.changed(next, bpfobj.LbChangeEventCHANGE_INIT, 0); err != nil {
			return err
		}
		if err := d.putService(key, next); err != nil {
			return err
		}
		if shareMemory(old.Scheduler, next.Scheduler) {
			return nil
		}
		return d.forget(old)
	})
}

// DeleteService removes a service. Its servers are remembered for as long as
// they have connections, whose packets are dropped until the server is back.
func (d *Director) DeleteService(k model.ServiceKey) error {
	return d.editNow(func(t *table) error {
		key, _, err := t.service(k)
		if err != nil {
			return err
		}
		return d.deleteServices(key)
	})
}

// Flush deletes every service.
func (d *Director) Flush() error {
	return d.editNow(func(t *table) error {
		return d.deleteServices(slices.Collect(maps.Keys(t.services))...)
	})
}

// deleteServices deletes services that there are.
func (d *Director) deleteServices(keys ...bpfobj.LbServiceKey) error {
	if len(keys) == 0 {
		return nil
	}
	if err := d.writing(); err != nil {
		return err
	}
	if _, err := d.maps.Services.BatchDelete(keys, nil); err != nil {
		return fmt.Errorf("delete services: %w", err)
	}
	var gone []bpfobj.LbService
	var retired []uint32
	for _, key := range keys {
		svc, servers := d.table.drop(key)
		gone = append(gone, svc)
		retired = append(retired, servers...)
	}
	if err := d.putServers(retired...); err != nil {
		return err
	}
	if err := d.forget(gone...); err != nil {
		return err
	}
	return d.endOrphans()
}

// drop takes a service out of the table, and returns the ids of its servers,
// which are retired now.
func (t *table) drop(key bpfobj.LbServiceKey) (bpfobj.LbService, []uint32) {
	svc := *t.services[key]
	servers := t.order[svc.Id]
	for _, id := range servers {
		t.retire(id)
		t.servers[id].Service = noService
	}
	t.quarantine.holdExtent(placeOf(&svc))
	t.quarantine.holdService(svc.Id)
	t.total.count(key, -1)
	t.total.engine(&svc, -1)
	delete(t.order, svc.Id)
	delete(t.services, key)
	return svc, servers
}

// forget ends schedulers' work for services, with all they remember.
func (d *Director) forget(services ...bpfobj.LbService) error {
	for _, svc := range services {
		if err := d.changed(svc, bpfobj.LbChangeEventCHANGE_DONE, 0); err != nil {
			return err
		}
	}
	return d.forgetServices(services)
}

// deleteKeys removes the elements of a hash for which want says so.
func deleteKeys[K, V any](m *ebpf.Map, want func(K, V) bool) error {
	var key K
	var value V
	var keys []K
	it := m.Iterate()
	for it.Next(&key, &value) {
		if want(key, value) {
			keys = append(keys, key)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read the schedulers' memory: %w", err)
	}
	for _, k := range keys {
		if err := deleteKey(m, k); err != nil {
			return err
		}
	}
	return nil
}

// deleteKey removes an element of a hash, if it is there.
func deleteKey(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("clear the schedulers' memory: %w", err)
	}
	return nil
}
