// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// total sums a counter over the CPUs.
func total(m *ebpf.Map, id uint32) (bpfobj.LbCounters, error) {
	var perCPU []bpfobj.LbCounters
	var sum bpfobj.LbCounters
	if err := m.Lookup(id, &perCPU); err != nil {
		return sum, fmt.Errorf("read counters: %w", err)
	}
	for _, c := range perCPU {
		sum.Conns += c.Conns
		sum.InPackets += c.InPackets
		sum.InBytes += c.InBytes
		sum.OutPackets += c.OutPackets
		sum.OutBytes += c.OutBytes
	}
	return sum, nil
}

// counted reads what an id counted since its zeroing, and its rates.
func (d *Director) counted(id uint32, counters, zeros, rates *ebpf.Map) (model.Stats, model.Rates, error) {
	now, err := total(counters, id)
	if err != nil {
		return model.Stats{}, model.Rates{}, err
	}
	var base bpfobj.LbCounters
	if err := zeros.Lookup(id, &base); err != nil {
		return model.Stats{}, model.Rates{}, fmt.Errorf("read counters: %w", err)
	}
	var r bpfobj.LbRates
	if err := rates.Lookup(id, &r); err != nil {
		return model.Stats{}, model.Rates{}, fmt.Errorf("read rates: %w", err)
	}
	return fromCounters(now).Sub(fromCounters(base)), fromRates(r), nil
}

// zero makes what an id counted so far its base. The kernel's counters are
// never written: a packet may be adding to them. The rates start again.
func zero(id uint32, counters, zeros, rates *ebpf.Map) error {
	now, err := total(counters, id)
	if err != nil {
		return err
	}
	if err := zeros.Put(id, now); err != nil {
		return fmt.Errorf("zero counters: %w", err)
	}
	if err := rates.Put(id, bpfobj.LbRates{Last: now}); err != nil {
		return fmt.Errorf("zero rates: %w", err)
	}
	return nil
}

func (d *Director) zeroService(id uint32) error {
	return zero(id, d.maps.ServiceCounters, d.maps.ServiceZeros, d.maps.ServiceRates)
}

func (d *Director) zeroServer(id uint32) error {
	return zero(id, d.maps.ServerCounters, d.maps.ServerZeros, d.maps.ServerRates)
}

// Zero clears the counters of a service and its servers; nil means all.
func (d *Director) Zero(k *model.ServiceKey) error {
	t, err := d.load()
	if err != nil {
		return err
	}
	if k != nil {
		_, svc, err := t.service(*k)
		if err != nil {
			return err
		}
		return d.zeroWithServers(svc.Id)
	}
	for _, svc := range t.services {
		if err := d.zeroWithServers(svc.Id); err != nil {
			return err
		}
	}
	return nil
}

func (d *Director) zeroWithServers(service uint32) error {
	if err := d.zeroService(service); err != nil {
		return err
	}
	for _, id := range d.table.order[service] {
		if err := d.zeroServer(id); err != nil {
			return err
		}
	}
	return nil
}

// serverStatus reads a server with its connections and counters.
func (d *Director) serverStatus(id uint32) (model.ServerStatus, error) {
	st := model.ServerStatus{Server: fromServer(d.table.servers[id])}
	var l bpfobj.LbLoad
	if err := d.maps.Loads.Lookup(id, &l); err != nil {
		return st, fmt.Errorf("read the servers' connections: %w", err)
	}
	st.Active, st.Inactive, st.Persistent = l.Active, l.Inactive, l.Persistent
	var err error
	st.Stats, st.Rates, err = d.counted(id, d.maps.ServerCounters, d.maps.ServerZeros, d.maps.ServerRates)
	return st, err
}

// clearOverload reopens a server for connections. It is a field of a value
// that packets count in, so the kernel writes it.
func (d *Director) clearOverload(id uint32) error {
	change := bpfobj.LbChange{Event: bpfobj.LbChangeEventCHANGE_REOPEN, Position: id}
	if _, err := d.progs.TableChanged.Run(&ebpf.RunOptions{Context: &change}); err != nil {
		return fmt.Errorf("reopen a server: %w", err)
	}
	return nil
}
