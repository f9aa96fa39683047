// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// An edit changes the table in memory and writes what became of it, under the
// lock. Before its first write it makes the generation odd, behind the last one
// even (generation.go): a command that has the lock and finds it odd follows one
// that was killed, and repairs what that left (repair.go).
//
// New services and servers can wait (staged.go), to be written many at a time.
// Other edits write at once, after what waits.

// edit carries out one edit. Its refusals come before its first write.
func (d *Director) edit(fn func(*table) error) error {
	return d.exclusively(func() error {
		t, err := d.load()
		if err != nil {
			return err
		}
		return d.finish(fn(t))
	})
}

// editNow is edit, for one that what waits must not wait for.
func (d *Director) editNow(fn func(*table) error) error {
	return d.edit(func(t *table) error {
		if err := d.commit(); err != nil {
			return err
		}
		return fn(t)
	})
}

// finish ends an edit: outside a batch nothing waits any longer.
func (d *Director) finish(err error) error {
	if err == nil && !d.batching {
		err = d.commit()
	}
	if err == nil && d.marked {
		err = d.writeOutbound()
	}
	if err != nil {
		if d.marked { // half done: the generation stays odd
			d.forgetTable()
		}
		return err
	}
	if !d.marked {
		return nil
	}
	if err := d.putQuarantine(); err != nil {
		d.forgetTable()
		return err
	}
	d.marked = false
	fence()
	return d.summarise(func(set *bpfobj.LbSettings, now summary) {
		set.Generation++
		now.into(set)
	})
}

// Batch runs edits under one lock, whose services and servers are written
// together once they are through. Each edit reports its own refusal at once;
// those before and after it stand. Others wait meanwhile: edits must not wait
// for input or output, and should take 50 ms at most.
func (d *Director) Batch(edits func() error) error {
	if d.batching {
		return edits()
	}
	if err := d.prepare(); err != nil {
		return err
	}
	return d.exclusively(func() error {
		d.overtaken = d.table == nil
		d.batching = true
		err := func() error {
			defer func() { d.batching = false }()
			return edits()
		}()
		return errors.Join(err, d.finish(nil))
	})
}

// prepare reads the table before the lock is taken for a batch, and lets others
// have the lock who waited for the last batch. While others edit all the time it
// does not: the batch would have to read the table again.
func (d *Director) prepare() error {
	if d.held || d.lock == nil {
		return nil
	}
	if rest := lockGap - time.Since(d.released); rest > 0 && !d.released.IsZero() {
		time.Sleep(rest)
	}
	set, err := d.config()
	if err != nil || d.overtaken || beingEdited(set.Generation) {
		return err
	}
	_, err = d.readOnce(set, func(*table) error { return nil })
	return err
}

// changeConfig changes the settings alone, by one write.
func (d *Director) changeConfig(change func(*bpfobj.LbSettings)) error {
	return d.exclusively(func() error {
		set, err := d.config()
		if err != nil {
			return err
		}
		change(&set)
		if !beingEdited(set.Generation) {
			set.Generation += 2
		}
		if err := putConfig(d.maps.Config, set); err != nil {
			return err
		}
		d.seen = set.Generation // by this handle's edit
		return nil
	})
}

// writing comes before each write to the table.
func (d *Director) writing() error {
	if !d.marked {
		err := d.summarise(func(set *bpfobj.LbSettings, now summary) {
			set.Generation++
			now.atLeast(summaryOf(set)).into(set)
		})
		d.marked = true
		if err != nil {
			return err
		}
		fence()
	}
	if d.interrupt != nil {
		return d.interrupt()
	}
	return nil
}

// forgetTable makes the next edit read the kernel's table again.
func (d *Director) forgetTable() {
	d.table, d.marked, d.staged = nil, false, staged{}
}

// summarise changes what the settings say of the whole table.
func (d *Director) summarise(change func(*bpfobj.LbSettings, summary)) error {
	set, err := d.config()
	if err != nil {
		return err
	}
	now := summaryOf(&set) // as an edit leaves it that does not need the table
	if d.table != nil {
		now = d.table.summary()
	}
	change(&set, now)
	d.seen = set.Generation
	return putConfig(d.maps.Config, set)
}

// summary is what the packet path needs of the whole table. Before
// services come it says at least what will be, and until services are gone
// what was: looking for what is not there does no harm.
type summary struct {
	services, servers        uint32 // ids in use are below
	inUse4, inUse6           uint32 // services
	fwmarks, portZeros, ftps uint32
	engines                  uint32 // services with a persistence engine
	draining, slowStarts     uint32 // servers
}

// count adds n services of a key.
func (s *summary) count(key bpfobj.LbServiceKey, n int) {
	if model.Family(key.Family) == model.IPv6 {
		s.inUse6 += uint32(n)
	} else {
		s.inUse4 += uint32(n)
	}
	switch {
	case key.Fwmark != 0:
		s.fwmarks += uint32(n)
	case key.Port == 0:
		s.portZeros += uint32(n)
	case swapPort(key.Port) == ftpPort:
		s.ftps += uint32(n)
	}
}

// engine counts n services with a persistence engine, if that is one.
func (s *summary) engine(svc *bpfobj.LbService, n int) {
	if svc.Engine != uint8(bpfobj.LbEngineENGINE_NONE) {
		s.engines += uint32(n)
	}
}

func (s summary) atLeast(o summary) summary {
	return summary{max(s.services, o.services), max(s.servers, o.servers), max(s.inUse4, o.inUse4), max(s.inUse6, o.inUse6),
		max(s.fwmarks, o.fwmarks), max(s.portZeros, o.portZeros), max(s.ftps, o.ftps),
		max(s.engines, o.engines), max(s.draining, o.draining), max(s.slowStarts, o.slowStarts)}
}

func (s summary) into(set *bpfobj.LbSettings) {
	set.Services, set.Servers, set.InUse4, set.InUse6 = s.services, s.servers, s.inUse4, s.inUse6
	set.Fwmarks, set.PortZeros, set.Ftps = s.fwmarks, s.portZeros, s.ftps
	set.Engines, set.Draining, set.SlowStarts = s.engines, s.draining, s.slowStarts
}

func summaryOf(set *bpfobj.LbSettings) summary {
	return summary{set.Services, set.Servers, set.InUse4, set.InUse6, set.Fwmarks, set.PortZeros, set.Ftps, set.Engines, set.Draining, set.SlowStarts}
}

// changed tells the service's scheduler of a change, in the kernel.
func (d *Director) changed(svc bpfobj.LbService, event bpfobj.LbChangeEvent, position uint32) error {
	if err := d.writing(); err != nil {
		return err
	}
	change := bpfobj.LbChange{Service: svc, Event: event, Position: position}
	if err := d.tell(&change); err != nil {
		return fmt.Errorf("tell scheduler %s of a change: %w", schedulerName(svc.Scheduler), err)
	}
	return nil
}

func (d *Director) putService(key bpfobj.LbServiceKey, svc bpfobj.LbService) error {
	return d.putServices([]bpfobj.LbServiceKey{key}, []bpfobj.LbService{svc})
}

func (d *Director) putServices(keys []bpfobj.LbServiceKey, values []bpfobj.LbService) error {
	if err := d.writing(); err != nil {
		return err
	}
	for i := range values {
		values[i].Check = serviceCheck(keys[i], values[i])
	}
	return putAll("services", d.maps.Services, keys, values)
}

// putServers writes servers as the table has them.
func (d *Director) putServers(ids ...uint32) error {
	if len(ids) == 0 {
		return nil
	}
	values := make([]bpfobj.LbServer, len(ids))
	for i, id := range ids {
		values[i] = d.table.servers[id]
	}
	if err := d.writing(); err != nil {
		return err
	}
	return putNumbered("servers", d.maps.Servers, ids, values)
}

func (d *Director) putServer(id uint32, s bpfobj.LbServer) error {
	if err := d.writing(); err != nil {
		return err
	}
	return putNumbered("servers", d.maps.Servers, []uint32{id}, []bpfobj.LbServer{s})
}

// putSlots writes ids of servers to slots of the order.
func (d *Director) putSlots(slots, ids []uint32) error {
	if err := d.writing(); err != nil {
		return err
	}
	return putNumbered("order of servers", d.maps.Order, slots, ids)
}

// putAll writes many elements of a map in one system call.
func putAll[K, V any](what string, m *ebpf.Map, keys []K, values []V) error {
	if len(keys) == 0 {
		return nil
	}
	if _, err := m.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}
