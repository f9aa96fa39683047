// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// AddService adds a virtual service without servers.
func (d *Director) AddService(s model.Service) error {
	t, err := d.load()
	if err != nil {
		return err
	}
	key := toKey(s.Key)
	if _, exists := t.services[key]; exists {
		return fmt.Errorf("service %s: %w", s.Key, model.ErrServiceExists)
	}
	var svc bpfobj.LbService
	if err := toService(s, &svc); err != nil {
		return fmt.Errorf("service %s: %w", s.Key, err)
	}
	if svc.Id, err = t.freeServiceID(d.maps.Services.MaxEntries()); err != nil {
		return fmt.Errorf("service %s: %w", s.Key, err)
	}
	if err := d.zeroService(svc.Id); err != nil {
		return err
	}
	t.ids[svc.Id] = true
	t.services[key] = &svc
	if err := d.changed(svc, bpfobj.LbChangeEventCHANGE_INIT, 0); err != nil {
		return err
	}
	// The summary first: it says up to which id there are services.
	if err := d.summarise(); err != nil {
		return err
	}
	return d.putService(key, svc)
}

// EditService replaces scheduler, flags and persistence; servers stay.
func (d *Director) EditService(s model.Service) error {
	t, err := d.load()
	if err != nil {
		return err
	}
	key, svc, err := t.service(s.Key)
	if err != nil {
		return err
	}
	next := *svc
	if err := toService(s, &next); err != nil {
		return fmt.Errorf("service %s: %w", s.Key, err)
	}
	old := *svc
	*svc = next
	if old.Scheduler == next.Scheduler {
		return d.putService(key, next)
	}
	// A packet must find the memory of the scheduler that it finds the name
	// of: the new one's comes first, the old one's goes last.
	if err := d.changed(next, bpfobj.LbChangeEventCHANGE_INIT, 0); err != nil {
		return err
	}
	if err := d.putService(key, next); err != nil {
		return err
	}
	if bucketed(old.Scheduler) && bucketed(next.Scheduler) {
		return nil // the new one's memory lies where the old one's was
	}
	return d.forget(old)
}

// bucketed reports whether a scheduler's memory is a table of buckets.
func bucketed(s bpfobj.LbScheduler) bool {
	return s == bpfobj.LbSchedulerSCHED_DH || s == bpfobj.LbSchedulerSCHED_SH
}

// DeleteService removes a service. Its servers are remembered for as long as
// they have connections, whose packets are dropped until the server is back.
func (d *Director) DeleteService(k model.ServiceKey) error {
	t, err := d.load()
	if err != nil {
		return err
	}
	key, svc, err := t.service(k)
	if err != nil {
		return err
	}
	if err := d.maps.Services.Delete(key); err != nil {
		return fmt.Errorf("service %s: %w", k, err)
	}
	for _, id := range t.order[svc.Id] {
		if err := d.retire(id); err != nil {
			return err
		}
	}
	if err := d.forget(*svc); err != nil {
		return err
	}
	t.slots.give(extent{svc.First, svc.Capacity})
	t.ids[svc.Id] = false
	t.live -= len(t.order[svc.Id])
	delete(t.order, svc.Id)
	delete(t.services, key)
	return d.summarise()
}

// Flush deletes every service.
func (d *Director) Flush() error {
	t, err := d.load()
	if err != nil {
		return err
	}
	for key := range t.services {
		if err := d.DeleteService(fromKey(key)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Director) putService(key bpfobj.LbServiceKey, svc bpfobj.LbService) error {
	if err := d.maps.Services.Put(key, svc); err != nil {
		return fmt.Errorf("service %s: %w", fromKey(key), err)
	}
	return nil
}

// changed tells the service's scheduler of a change, in the kernel.
func (d *Director) changed(svc bpfobj.LbService, event bpfobj.LbChangeEvent, position int) error {
	change := bpfobj.LbChange{Service: svc, Event: event, Position: uint32(position)}
	if _, err := d.progs.TableChanged.Run(&ebpf.RunOptions{Context: &change}); err != nil {
		return fmt.Errorf("tell scheduler %s of a change: %w", schedulerName(svc.Scheduler), err)
	}
	return nil
}

// forget ends a scheduler's work for a service, with all it remembers.
func (d *Director) forget(svc bpfobj.LbService) error {
	if err := d.changed(svc, bpfobj.LbChangeEventCHANGE_DONE, 0); err != nil {
		return err
	}
	switch svc.Scheduler {
	case bpfobj.LbSchedulerSCHED_LBLC:
		return deleteKeys(d.maps.Localities, func(k bpfobj.LbLocalityKey, _ bpfobj.LbLocality) bool {
			return k.Service == svc.Id
		})
	case bpfobj.LbSchedulerSCHED_LBLCR:
		return deleteKeys(d.maps.LocalitySets, func(k bpfobj.LbLocalityKey, _ bpfobj.LbLocalitySet) bool {
			return k.Service == svc.Id
		})
	}
	return nil
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
		return fmt.Errorf("read the schedulers' caches: %w", err)
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("clear the schedulers' caches: %w", err)
		}
	}
	return nil
}

// summarise writes what the packet path wants to know of the whole table.
func (d *Director) summarise() error {
	t := d.table
	set, err := d.config()
	if err != nil {
		return err
	}
	set.Services, set.Servers = uint32(len(t.ids)), uint32(len(t.servers))
	set.InUse, set.Fwmarks, set.PortZeros, set.Ftps = uint32(len(t.services)), 0, 0, 0
	for key := range t.services {
		switch {
		case key.Fwmark != 0:
			set.Fwmarks++
		case key.Port == 0:
			set.PortZeros++
		case swapPort(key.Port) == ftpPort:
			set.Ftps++
		}
	}
	return putConfig(d.maps.Config, set)
}

// noteServers writes up to which id there are servers, the only thing in the
// summary that a server changes: lists of many services add many servers.
func (d *Director) noteServers() error {
	set, err := d.config()
	if err != nil || set.Servers == uint32(len(d.table.servers)) {
		return err
	}
	set.Servers = uint32(len(d.table.servers))
	return putConfig(d.maps.Config, set)
}

// Services lists all services, in no particular order; their servers in the
// order of Linux's list, the latest added first.
func (d *Director) Services() ([]model.ServiceStatus, error) {
	t, err := d.load()
	if err != nil {
		return nil, err
	}
	all := make([]model.ServiceStatus, 0, len(t.services))
	for key, svc := range t.services {
		st := model.ServiceStatus{Service: fromService(key, *svc)}
		if st.Stats, st.Rates, err = d.counted(svc.Id, d.maps.ServiceCounters, d.maps.ServiceZeros, d.maps.ServiceRates); err != nil {
			return nil, err
		}
		for _, id := range slices.Backward(t.order[svc.Id]) {
			server, err := d.serverStatus(id)
			if err != nil {
				return nil, err
			}
			st.Servers = append(st.Servers, server)
		}
		all = append(all, st)
	}
	return all, nil
}
