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

// tally is what is counted of services or of servers, by id.
type tally struct {
	counters, zeros, births, rates *paged
}

func (d *Director) serviceTally() tally {
	return tally{d.maps.ServiceCounters, d.maps.ServiceZeros, d.maps.ServiceBirths, d.maps.ServiceRates}
}

func (d *Director) serverTally() tally {
	return tally{d.maps.ServerCounters, d.maps.ServerZeros, d.maps.ServerBirths, d.maps.ServerRates}
}

// totals sums the counters of the first n ids over the CPUs.
func (c tally) totals(n uint32) ([]bpfobj.LbCounters, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	sums := make([]bpfobj.LbCounters, n)
	keys, perCPU := make([]uint32, pageIDs), make([]bpfobj.LbCounters, pageIDs*cpus)
	for page := range c.counters.pages(n) {
		m, err := c.counters.page(page)
		if err == nil && m != nil {
			var cursor ebpf.MapBatchCursor
			_, err = m.BatchLookup(&cursor, keys, perCPU, nil)
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that it was the last batch
			return nil, fmt.Errorf("read counters: %w", err)
		}
		if m == nil {
			continue
		}
		for i := range min(pageIDs, n-page*pageIDs) {
			sums[page*pageIDs+i] = sum(perCPU[int(i)*cpus:][:cpus])
		}
	}
	return sums, nil
}

func sum(perCPU []bpfobj.LbCounters) (total bpfobj.LbCounters) {
	for _, c := range perCPU {
		total.Conns += c.Conns
		total.InPackets += c.InPackets
		total.InBytes += c.InBytes
		total.OutPackets += c.OutPackets
		total.OutBytes += c.OutBytes
	}
	return total
}

// counted is what an id counted since its zeroing and since it was given to its
// service or server, and its rates.
type counted struct {
	model.Stats
	model.Rates
	total model.Stats
}

// read reads the first n ids.
func (c tally) read(n uint32) ([]counted, error) {
	now, err := c.totals(n)
	if err != nil {
		return nil, err
	}
	zeros, err := lookupAll[bpfobj.LbCounters](c.zeros, n)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	births, err := lookupAll[bpfobj.LbCounters](c.births, n)
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	rates, err := lookupAll[bpfobj.LbRates](c.rates, n)
	if err != nil {
		return nil, fmt.Errorf("read rates: %w", err)
	}
	all := make([]counted, n)
	for id := range all {
		total := fromCounters(now[id])
		all[id] = counted{total.Sub(fromCounters(zeros[id])), fromRates(rates[id]), total.Sub(fromCounters(births[id]))}
	}
	return all, nil
}

// ClientPackets is how many packets clients have sent to services, ever: those are counted,
// too, that were deleted, until the last ones of the table are. It reads counters alone, and
// so waits for no other command.
func (d *Director) ClientPackets() (n uint64, err error) {
	set, err := d.config()
	if err != nil {
		return 0, err
	}
	all, err := d.serviceTally().totals(set.Services)
	for i := range all {
		n += all[i].InPackets
	}
	return n, err
}

// zero makes what ids counted so far their base. The kernel's counters are
// never written: a packet may be adding to them. The rates start again.
func (c tally) zero(ids []uint32) error { return c.rebase(ids, c.zeros) }

// begin lets ids that were in use before count from zero for a new service or
// server. The counters of an id that was never in use are 0.
func (c tally) begin(ids []uint32) error { return c.rebase(ids, c.zeros, c.births) }

// rebase writes what ids counted so far as their base of some kind, the same to
// each: totals since birth are never less than those since a zeroing.
func (c tally) rebase(ids []uint32, bases ...*paged) error {
	totals := make([]bpfobj.LbCounters, len(ids))
	rates := make([]bpfobj.LbRates, len(ids))
	if err := c.lookup(ids, totals); err != nil {
		return err
	}
	for i, now := range totals {
		rates[i].Last = now
	}
	for _, base := range bases {
		if err := putNumbered("bases of counters", base, ids, totals); err != nil {
			return err
		}
	}
	return putNumbered("zeros of rates", c.rates, ids, rates)
}

// lookup reads the totals of ids, of many with one pass over all up to the last.
// To read one by itself takes as long as eight in such a pass.
func (c tally) lookup(ids []uint32, into []bpfobj.LbCounters) error {
	if len(ids) == 0 {
		return nil
	}
	if n := slices.Max(ids) + 1; len(ids) > int(n)/8 {
		all, err := c.totals(n)
		if err != nil {
			return err
		}
		for i, id := range ids {
			into[i] = all[id]
		}
		return nil
	}
	var perCPU []bpfobj.LbCounters
	for i, id := range ids {
		if err := c.counters.Lookup(id, &perCPU); err != nil {
			return fmt.Errorf("read counters: %w", err)
		}
		into[i] = sum(perCPU)
	}
	return nil
}

// rebase makes what ids of services or servers counted so far a base, by zero or
// begin of a tally.
func (d *Director) rebase(ids []uint32, base func([]uint32) error) error {
	if len(ids) == 0 {
		return nil
	}
	if err := d.writing(); err != nil {
		return err
	}
	return base(ids)
}

// Zero clears the counters of a service and its servers; nil means all.
func (d *Director) Zero(k *model.ServiceKey) error {
	return d.editNow(func(t *table) error {
		var services, servers []uint32
		if k != nil {
			_, svc, err := t.service(*k)
			if err != nil {
				return err
			}
			services, servers = []uint32{svc.Id}, t.order[svc.Id]
		} else {
			for _, svc := range t.services {
				services = append(services, svc.Id)
				servers = append(servers, t.order[svc.Id]...)
			}
		}
		if err := d.rebase(services, d.serviceTally().zero); err != nil {
			return err
		}
		return d.rebase(servers, d.serverTally().zero)
	})
}
