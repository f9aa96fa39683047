// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// Builds up to ABI 2 have tables by id and by slot in one array each. What commands wrote, and what
// schedulers remember, is copied into pages before packets are handed over. What programs count begins
// at 0 there: loads, since each connection that is adopted is counted, and counters, whose totals
// until then go into the bases that listings subtract. Trees are made anew.

// planPages plans a table that is in one array in the earlier build, or would be in the new one.
func planPages(m MapPlan, rule policy, value change) (MapPlan, error) {
	if rule == renew {
		return m, nil
	}
	m.Disposition = Converted
	m.Differences = append(m.Differences, "in pages")
	if _, err := value.converter(); err != nil {
		return m, fmt.Errorf("map %s: %w", m.Name, err)
	}
	return m, nil
}

// checkPages refuses pages of another size, which the look-ups of both builds would take for theirs.
func checkPages(have *ebpf.Map, want *ebpf.MapSpec) error {
	var page *ebpf.Map
	err := have.Lookup(uint32(0), &page)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer page.Close()
	if page.MaxEntries() != want.InnerMap.MaxEntries {
		return fmt.Errorf("pages of %d elements instead of %d", want.InnerMap.MaxEntries, page.MaxEntries())
	}
	return nil
}

// sizeOf is how many elements a table has room for.
func sizeOf(table string, m *ebpf.Map) uint32 {
	if p := pagingOf(table); p != nil {
		return p.elements(m)
	}
	return m.MaxEntries()
}

// resizeTo gives a table of the new build room for so many.
func resizeTo(want *ebpf.MapSpec, table string, n uint32) {
	if p := pagingOf(table); p != nil && want.Type == ebpf.ArrayOfMaps {
		n = p.pages(n)
	}
	want.MaxEntries = n
}

// numbered reads elements of a table by number, of any build.
type numbered struct {
	array *ebpf.Map
	pages *paged // instead
}

func numberedOf(table string, m *ebpf.Map) numbered {
	if m != nil && m.Type() == ebpf.ArrayOfMaps {
		return numbered{pages: &paged{paging: pagingOf(table), outer: m}}
	}
	return numbered{array: m}
}

func (t numbered) close() {
	if t.pages != nil {
		t.pages.closePages()
	}
}

// bytes is an element; nil if it has no page.
func (t numbered) bytes(n uint32) ([]byte, error) {
	if t.pages == nil {
		return t.array.LookupBytes(n)
	}
	m, err := t.pages.page(n / t.pages.size)
	if m == nil || err != nil {
		return nil, err
	}
	return m.LookupBytes(n % t.pages.size)
}

// nextTables are the new build's tables in pages: of a Director, what adds pages, and changes.
func (u *upgrade) nextTables() *Director {
	d := &Director{}
	for _, p := range pagings {
		outer := u.next.maps[p.name]
		if outer == nil || outer.Type() != ebpf.ArrayOfMaps {
			continue
		}
		if want := u.spec.Maps[p.name]; want != nil && want.InnerMap != nil {
			p.value = want.InnerMap.ValueSize
		}
		*p.of(&d.maps) = &paged{paging: &p, outer: outer}
	}
	d.progs.TableChanged = u.next.progs["table_changed"]
	return d
}

// numbersInUse are the numbers that the earlier build has in use of each kind: ids are below a bound.
type numbersInUse struct {
	services, servers uint32
	lists             []bpfobj.LbService
}

func (u *upgrade) inUse() (n numbersInUse, err error) {
	set, err := u.next.settings()
	if err != nil {
		return n, err
	}
	for path, to := range map[string]*uint32{"config.settings.services": &n.services, "config.settings.servers": &n.servers} {
		w, err := set.word(path)
		if err != nil {
			return n, err
		}
		*to = binary.NativeEndian.Uint32(w)
	}
	return n, nil
}

// each calls do with each number in use.
func (n *numbersInUse) each(by numbering, do func(uint32) error) error {
	for _, svc := range n.lists {
		for i := range svc.Count {
			if by != bySlot {
				break
			}
			if err := do(svc.First + i); err != nil {
				return err
			}
		}
	}
	for id := range map[numbering]uint32{byServiceID: n.services, byServerID: n.servers}[by] {
		if err := do(id); err != nil {
			return err
		}
	}
	return nil
}

// copyPages makes the pages that the tables need which are not kept, and copies into them.
func (u *upgrade) copyPages() error {
	n, err := u.inUse()
	if err != nil {
		return err
	}
	if _, n.lists, err = hashAll[bpfobj.LbServiceKey, bpfobj.LbService](u.next.maps["services"], hashBatch); err != nil {
		return fmt.Errorf("read services: %w", err)
	}
	var services, servers []uint32 // one of each page
	for id := uint32(0); id < n.services; id += pageIDs {
		services = append(services, id)
	}
	for id := uint32(0); id < n.servers; id += pageIDs {
		servers = append(servers, id)
	}
	var lists []extent
	for i := range n.lists {
		lists = append(lists, placeOf(&n.lists[i]))
	}
	d := u.nextTables()
	defer d.maps.closePages()
	if err := d.addPages(services, servers, lists); err != nil {
		return err
	}
	for _, m := range u.result.Plan.Maps {
		p := pagingOf(m.Name)
		if p == nil || m.Disposition != Converted {
			continue
		}
		if *p.of(&d.maps) == nil {
			continue
		}
		former := u.cur.origin(m.Name).Type() != ebpf.ArrayOfMaps
		switch {
		case m.Name == "loads" && former:
			err = u.copyNumbered(p, &n, *p.of(&d.maps), func(_ uint32, value []byte) error { return onlyOverloaded(value) })
		case m.Name == "servers" || m.Name == "order" || !former:
			err = u.copyNumbered(p, &n, *p.of(&d.maps), func(uint32, []byte) error { return nil })
		}
		if err != nil {
			return fmt.Errorf("map %s: %w", m.Name, err)
		}
	}
	return u.copyStates(d, &n)
}

// copyNumbered converts the elements in use, and has edit change each.
func (u *upgrade) copyNumbered(p *paging, n *numbersInUse, to *paged, edit func(number uint32, value []byte) error) error {
	from := u.cur.origin(p.name)
	_, value, err := u.cur.layoutsOf(from, u.spec.Maps[p.name])
	if err != nil {
		return err
	}
	c, err := value.converter()
	if err != nil {
		return err
	}
	elements := numberedOf(p.name, from)
	defer elements.close()
	return n.each(p.by, func(i uint32) error {
		old, err := elements.bytes(i)
		if old == nil || err != nil {
			return err
		}
		is := make([]byte, value.to.Size)
		c.Convert(is, old)
		if err := edit(i, is); err != nil {
			return err
		}
		return to.Put(i, is)
	})
}

// onlyOverloaded leaves of a load that its server has reached its upper threshold.
func onlyOverloaded(value []byte) error {
	var l bpfobj.LbLoad
	if len(value) != len(memoryOf(&l)) {
		return errors.New("its elements are of another build")
	}
	copy(memoryOf(&l), value)
	l = bpfobj.LbLoad{Overloaded: l.Overloaded & loadOverloaded}
	copy(value, memoryOf(&l))
	return nil
}

// copyStates copies what schedulers remember in words, and makes the trees of the new build, which
// counts no connection yet.
func (u *upgrade) copyStates(d *Director, n *numbersInUse) error {
	p := pagingOf("service_states")
	if u.cur.maps[p.name].Type() == ebpf.ArrayOfMaps || d.maps.ServiceStates == nil {
		return nil
	}
	set, err := readConfig(u.next.maps[configTable])
	if err != nil {
		return err
	}
	lists := map[uint32]bpfobj.LbService{}
	for _, svc := range n.lists {
		lists[svc.Id] = svc
	}
	return u.copyNumbered(p, n, d.maps.ServiceStates, func(id uint32, value []byte) error {
		var was, is bpfobj.LbServiceState
		copy(memoryOf(&was), value)
		if svc, ok := lists[id]; ok && (was.Tree.Tag != 0 || set.Settings.SlowStarts != 0) {
			if err := d.tell(&bpfobj.LbChange{Service: svc, Event: bpfobj.LbChangeEventCHANGE_UNKNOWN}); err != nil {
				return err
			}
			if err := d.maps.ServiceStates.Lookup(id, &is); err != nil {
				return err
			}
		}
		was.Tree, was.Climbers = is.Tree, is.Climbers
		copy(value, memoryOf(&was))
		return nil
	})
}

// carry has what the earlier build counted go on in counters that began at 0. Its counters are not
// written any more, so it may be done again; rates that are not 0 have gone on already.
func (u *upgrade) carry() error {
	n, err := u.inUse()
	if err != nil {
		return err
	}
	d := u.nextTables()
	defer d.maps.closePages()
	for _, c := range []struct {
		of    string
		by    numbering
		tally tally
	}{{"service", byServiceID, d.serviceTally()}, {"server", byServerID, d.serverTally()}} {
		counters := u.cur.maps[c.of+"_counters"]
		if counters == nil || counters.Type() == ebpf.ArrayOfMaps || c.tally.counters == nil {
			continue
		}
		err := n.each(c.by, func(id uint32) error {
			var perCPU []bpfobj.LbCounters
			if err := counters.Lookup(id, &perCPU); err != nil {
				return err
			}
			total := sum(perCPU)
			for base, name := range map[*paged]string{c.tally.zeros: "_zeros", c.tally.births: "_births"} {
				var was bpfobj.LbCounters
				if err := u.cur.origin(c.of+name).Lookup(id, &was); err != nil {
					return err
				}
				if err := base.Put(id, less(was, total)); err != nil {
					return err
				}
			}
			var was, is bpfobj.LbRates
			if err := errors.Join(u.cur.maps[c.of+"_rates"].Lookup(id, &was), c.tally.rates.Lookup(id, &is)); err != nil {
				return err
			}
			if is != (bpfobj.LbRates{}) {
				return nil
			}
			was.Last = less(was.Last, total)
			return c.tally.rates.Put(id, was)
		})
		if err != nil {
			return fmt.Errorf("counters of each %s: %w", c.of, err)
		}
	}
	return nil
}

// less subtracts counters; what becomes less than 0 is more again when it is subtracted.
func less(a, b bpfobj.LbCounters) bpfobj.LbCounters {
	a.Conns -= b.Conns
	a.InPackets -= b.InPackets
	a.InBytes -= b.InBytes
	a.OutPackets -= b.OutPackets
	a.OutBytes -= b.OutBytes
	return a
}
