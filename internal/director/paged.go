// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// Tables by the id of a service or server, and by the slots of lists, are in pages: arrays in an
// array of maps (bpf/maps.h, bpf/by_id.h). Programs cannot make maps, so an edit makes the pages of
// what it adds before it writes that. A page stays, and is never replaced: a descriptor of one is
// valid as long as the director.

// numbering is what the elements of such a table are numbered by.
type numbering int

const (
	byServiceID numbering = iota
	byServerID
	bySlot
)

// pageIDs and pageSlots are PAGE_IDS and PAGE_SLOTS of bpf/maps.h.
const pageIDs, pageSlots = 128, 1024

// paging says how a table is in pages.
type paging struct {
	name  string
	by    numbering
	kind  ebpf.MapType // of a page
	value uint32       // size of an element [bytes]
	size  uint32       // elements of a page
	of    func(*tables) **paged
}

// pagings are of all such tables (a test compares).
var pagings = []paging{
	idPages("service_states", byServiceID, ebpf.Array, bpfobj.LbServiceState{}, func(t *tables) **paged { return &t.ServiceStates }),
	idPages("fair_sums", byServiceID, ebpf.Array, bpfobj.LbFairSum{}, func(t *tables) **paged { return &t.FairSums }),
	idPages("service_counters", byServiceID, ebpf.PerCPUArray, bpfobj.LbCounters{}, func(t *tables) **paged { return &t.ServiceCounters }),
	idPages("service_zeros", byServiceID, ebpf.Array, bpfobj.LbCounters{}, func(t *tables) **paged { return &t.ServiceZeros }),
	idPages("service_births", byServiceID, ebpf.Array, bpfobj.LbCounters{}, func(t *tables) **paged { return &t.ServiceBirths }),
	idPages("service_rates", byServiceID, ebpf.Array, bpfobj.LbRates{}, func(t *tables) **paged { return &t.ServiceRates }),
	idPages("crowds", byServiceID, ebpf.Array, bpfobj.LbCrowd{}, func(t *tables) **paged { return &t.Crowds }),
	idPages("servers", byServerID, ebpf.Array, bpfobj.LbServer{}, func(t *tables) **paged { return &t.Servers }),
	idPages("loads", byServerID, ebpf.Array, bpfobj.LbLoad{}, func(t *tables) **paged { return &t.Loads }),
	idPages("server_counters", byServerID, ebpf.PerCPUArray, bpfobj.LbCounters{}, func(t *tables) **paged { return &t.ServerCounters }),
	idPages("server_zeros", byServerID, ebpf.Array, bpfobj.LbCounters{}, func(t *tables) **paged { return &t.ServerZeros }),
	idPages("server_births", byServerID, ebpf.Array, bpfobj.LbCounters{}, func(t *tables) **paged { return &t.ServerBirths }),
	idPages("server_rates", byServerID, ebpf.Array, bpfobj.LbRates{}, func(t *tables) **paged { return &t.ServerRates }),
	idPages("ramp_turns", byServerID, ebpf.PerCPUArray, bpfobj.LbRampTurn{}, func(t *tables) **paged { return &t.RampTurns }),
	idPages("maglev_turns", byServerID, ebpf.Array, bpfobj.LbMaglevTurn{}, func(t *tables) **paged { return &t.MaglevTurns }),
	{"order", bySlot, ebpf.Array, 4, pageSlots, func(t *tables) **paged { return &t.Order }},
	// A pair of nodes for two slots.
	{"trees", bySlot, ebpf.Array, uint32(unsafe.Sizeof(bpfobj.LbTreePair{})), pageSlots / 2, func(t *tables) **paged { return &t.Trees }},
}

func idPages[V any](name string, by numbering, kind ebpf.MapType, _ V, of func(*tables) **paged) paging {
	return paging{name, by, kind, uint32(unsafe.Sizeof(*new(V))), pageIDs, of}
}

// pagingOf is that of a table; nil if it is not in pages.
func pagingOf(table string) *paging {
	i := slices.IndexFunc(pagings, func(p paging) bool { return p.name == table })
	if i < 0 {
		return nil
	}
	return &pagings[i]
}

// pages is how many are needed for n elements.
func (p *paging) pages(n uint32) uint32 {
	return uint32((uint64(n) + uint64(p.size) - 1) / uint64(p.size))
}

// elements is how many elements a map has room for that is such a table, of any build.
func (p *paging) elements(m *ebpf.Map) uint32 {
	if m.Type() == ebpf.ArrayOfMaps {
		return m.MaxEntries() * p.size
	}
	return m.MaxEntries()
}

// make makes a page.
func (p *paging) make() (*ebpf.Map, error) {
	return ebpf.NewMap(&ebpf.MapSpec{Name: "page", Type: p.kind, KeySize: 4, ValueSize: p.value, MaxEntries: p.size})
}

// tables are those of the data plane. What is in pages hides the map of these.
type tables struct {
	bpfobj.Tables
	ServiceStates, FairSums, ServiceCounters, ServiceZeros, ServiceBirths, ServiceRates, Crowds    *paged
	Servers, Loads, ServerCounters, ServerZeros, ServerBirths, ServerRates, RampTurns, MaglevTurns *paged
	Order, Trees                                                                                   *paged
}

func tablesOf(maps bpfobj.Tables) tables {
	t := tables{Tables: maps}
	t.Each(func(name string, m **ebpf.Map) {
		if p := pagingOf(name); p != nil {
			*p.of(&t) = &paged{paging: p, outer: *m}
		}
	})
	return t
}

func (t *tables) closePages() {
	for i := range pagings {
		if p := *pagings[i].of(t); p != nil {
			p.closePages()
		}
	}
}

// Close closes all maps.
func (t *tables) Close() error {
	t.closePages()
	return t.Tables.Close()
}

// paged is a table in pages.
type paged struct {
	*paging
	outer *ebpf.Map
	open  map[uint32]*ebpf.Map // pages, by number
}

// mostOpen is how many pages of a table are open at most.
const mostOpen = 4

// MaxEntries is how many elements there may be.
func (p *paged) MaxEntries() uint32 { return p.elements(p.outer) }

// page is a page by its number; nil if there is none. It is valid until the next call.
func (p *paged) page(n uint32) (*ebpf.Map, error) {
	if m := p.open[n]; m != nil {
		return m, nil
	}
	var m *ebpf.Map
	if err := p.outer.Lookup(n, &m); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if len(p.open) == mostOpen {
		p.closePages()
	}
	if p.open == nil {
		p.open = map[uint32]*ebpf.Map{}
	}
	p.open[n] = m
	return m, nil
}

func (p *paged) closePages() {
	for _, m := range p.open {
		m.Close()
	}
	clear(p.open)
}

// clone has descriptors of its own.
func (p *paged) clone() (*paged, error) {
	outer, err := p.outer.Clone()
	return &paged{paging: p.paging, outer: outer}, err
}

// Lookup reads an element. One without a page is not there.
func (p *paged) Lookup(n uint32, value any) error {
	m, err := p.page(n / p.size)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%s: element %d: %w", p.name, n, ebpf.ErrKeyNotExist)
	}
	return m.Lookup(n%p.size, value)
}

// Put writes an element.
func (p *paged) Put(n uint32, value any) error {
	if err := p.add([]uint32{n / p.size}); err != nil {
		return err
	}
	m, err := p.page(n / p.size)
	if err != nil {
		return err
	}
	return m.Put(n%p.size, value)
}

// add makes those of pages that are not there.
func (p *paged) add(pages []uint32) error {
	var missing []uint32
	for _, n := range pages {
		if p.open[n] != nil {
			continue
		}
		var id uint32
		err := p.outer.Lookup(n, &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			missing = append(missing, n)
		} else if err != nil {
			return err
		}
	}
	for some := range slices.Chunk(missing, pagesAtOnce) {
		if err := putPages(p.outer, some, p.make); err != nil {
			return fmt.Errorf("add memory to %s: %w", p.name, err)
		}
	}
	return nil
}

// zero makes all elements of a table zero. Pages stay.
func (p *paging) zero(outer *ebpf.Map) error {
	t := paged{paging: p, outer: outer}
	defer t.closePages()
	for n := range outer.MaxEntries() {
		m, err := t.page(n)
		if err == nil && m != nil {
			err = zeroArray(m)
		}
		if err != nil {
			return fmt.Errorf("empty %s: %w", p.name, err)
		}
	}
	return nil
}

// addPages makes the pages of services and servers, by id, and of lists. The kernel waits for packets
// under way when pages are added to a table (maybe_wait_bpf_programs), so all tables wait at once.
func (d *Director) addPages(services, servers []uint32, lists []extent) error {
	pages := map[numbering][]uint32{byServiceID: pagesOfIDs(services), byServerID: pagesOfIDs(servers), bySlot: pagesOfLists(lists)}
	errs := make([]error, len(pagings))
	var group sync.WaitGroup
	for i := range pagings {
		table := *pagings[i].of(&d.maps)
		if wanted := pages[pagings[i].by]; table != nil && len(wanted) > 0 {
			group.Go(func() { errs[i] = table.add(wanted) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

func pagesOfIDs(ids []uint32) (pages []uint32) {
	for _, id := range ids {
		pages = append(pages, id/pageIDs)
	}
	slices.Sort(pages)
	return slices.Compact(pages)
}

// pagesOfLists: slot 0 has the trees' latest tag.
func pagesOfLists(lists []extent) (pages []uint32) {
	for _, e := range lists {
		if e.size == 0 {
			continue
		}
		for n := e.first / pageSlots; n <= (e.first+e.size-1)/pageSlots; n++ {
			pages = append(pages, n)
		}
	}
	if len(pages) > 0 {
		pages = append(pages, 0)
	}
	slices.Sort(pages)
	return slices.Compact(pages)
}

// lookupAll reads the first n values of a table in pages. Those without a page are zero.
func lookupAll[V any](p *paged, n uint32) ([]V, error) { return lookupSpan[V](p, 0, n) }

// lookupSpan reads n values, from the first-th on.
func lookupSpan[V any](p *paged, first, n uint32) ([]V, error) {
	values := make([]V, n)
	for done := uint32(0); done < n; {
		page, at := (first+done)/p.size, (first+done)%p.size
		here := min(p.size-at, n-done)
		m, err := p.page(page)
		if err != nil {
			return nil, err
		}
		if m != nil {
			all, err := lookupArray[V](m, at+here)
			if err != nil {
				return nil, err
			}
			copy(values[done:], all[at:])
		}
		done += here
	}
	return values, nil
}

// putNumbered writes elements of a table in pages, page by page.
func putNumbered[V any](what string, p *paged, numbers []uint32, values []V) error {
	places := map[uint32][]int{} // by page
	for i, n := range numbers {
		places[n/p.size] = append(places[n/p.size], i)
	}
	for page, all := range places {
		keys, here := make([]uint32, len(all)), make([]V, len(all))
		for k, i := range all {
			keys[k], here[k] = numbers[i]%p.size, values[i]
		}
		err := p.add([]uint32{page})
		var m *ebpf.Map
		if err == nil {
			m, err = p.page(page)
		}
		if err == nil {
			_, err = m.BatchUpdate(keys, here, nil)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", what, err)
		}
	}
	return nil
}
