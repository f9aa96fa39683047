// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// order is a table of so many slots, each of which has its number; pages that no number of
// written is in are missing.
func order(t *testing.T, n uint32, written func(uint32) bool) *paged {
	t.Helper()
	testenv.Root(t)
	p := pagingOf("order")
	template := &ebpf.MapSpec{Type: p.kind, KeySize: 4, ValueSize: p.value, MaxEntries: p.size}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: p.pages(n), InnerMap: template})
	if err != nil {
		t.Fatal(err)
	}
	all := &paged{paging: p, outer: m}
	t.Cleanup(func() {
		all.closePages()
		m.Close()
	})
	var slots []uint32
	for i := range n {
		if written(i) {
			slots = append(slots, i)
		}
	}
	if err := putNumbered("slots", all, slots, slots); err != nil {
		t.Fatal(err)
	}
	return all
}

// All of a table is read alike, whether its pages are open or not; what has no page is zero, and is
// not there for a look-up.
func TestLookupSpan(t *testing.T) {
	const size, first, last = 100 * pageSlots, 3*pageSlots + 5, 80*pageSlots + 1
	there := func(i uint32) bool { return i >= first && i < last }
	m := order(t, size, there)
	for _, c := range []struct{ first, n uint32 }{
		{0, 0}, {0, 7}, {0, size}, {5, 0}, {first, 1}, {first - 1, 2}, {70_000, 20_000}, {size - 3, 3}, {last - 1, 9},
	} {
		got, err := lookupSpan[uint32](m, c.first, c.n)
		if err != nil || uint32(len(got)) != c.n {
			t.Errorf("%+v: %d values, %v", c, len(got), err)
		}
		for i, v := range got {
			want := c.first + uint32(i)
			if !there(want) {
				want = 0
			}
			if v != want {
				t.Fatalf("%+v: value %d is %d", c, i, v)
			}
		}
	}
	if len(m.open) > mostOpen {
		t.Errorf("%d pages are open", len(m.open))
	}
	if _, err := lookupSpan[uint64](m, first, 1); err == nil {
		t.Error("values of another size are read")
	}
	var v uint32
	if err := m.Lookup(first, &v); err != nil || v != first {
		t.Errorf("slot %d: %d, %v", first, v, err)
	}
	if err := m.Lookup(0, &v); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("slot 0: %v", err)
	}
	if err := m.Put(size, v); err == nil {
		t.Error("a slot behind the last one is written")
	}
}

// The tables in pages are those of the data plane, with its sizes.
func TestPagings(t *testing.T) {
	spec, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	type shape struct {
		kind        ebpf.MapType
		value, size uint32
	}
	want, got := map[string]shape{}, map[string]shape{}
	for name, m := range spec.Maps {
		if inner := m.InnerMap; inner != nil && inner.Value != nil && inner.MaxEntries > 1 && name != "block_pages" {
			want[name] = shape{inner.Type, inner.ValueSize, inner.MaxEntries}
		}
	}
	for _, p := range pagings {
		got[p.name] = shape{p.kind, p.value, p.size}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Services and servers that are added get pages, and no other numbers.
func TestPagesAreMadeByEdits(t *testing.T) {
	t.Parallel()
	r := newRig(t, Sizes{Services: 512, Servers: 1024, Connections: 1})
	pages := func(name string) (all []uint32) {
		outer := r.mapNamed(name)
		for n := range outer.MaxEntries() {
			var id uint32
			if outer.Lookup(n, &id) == nil {
				all = append(all, n)
			}
		}
		return all
	}
	check := func(when string, want map[numbering][]uint32) {
		t.Helper()
		for _, p := range pagings {
			if got := pages(p.name); !slices.Equal(got, want[p.by]) {
				t.Errorf("%s: %s has pages %v, want %v", when, p.name, got, want[p.by])
			}
		}
	}
	check("empty", nil)
	r.addService(tcpService(vip, "wlc"), 1)
	check("one", map[numbering][]uint32{byServiceID: {0}, byServerID: {0}, bySlot: {0}})
	r.must(r.Batch(func() error {
		s := tcpService(nthVIP(3), "wlc")
		err := r.AddService(s)
		for i := range 300 {
			err = errors.Join(err, r.AddServer(s.Key, model.Server{Addr: serverAddr(i % 200), Port: uint16(8080 + i/200), Weight: 1}))
		}
		return err
	}))
	check("many", map[numbering][]uint32{byServiceID: {0}, byServerID: {0, 1, 2}, bySlot: {0}})
	r.wantClean("many")
}

// Lists are read wherever they lie.
func TestLists(t *testing.T) {
	d := &Director{}
	d.maps.Order = order(t, 1<<20, func(i uint32) bool { return i < 1000 || i > 890_000 })
	services := []bpfobj.LbService{
		{Id: 1, First: 900_000, Count: 3, Capacity: 4},
		{Id: 2},
		{Id: 3, First: 8, Count: 2, Capacity: 8},
		{Id: 4, First: 16, Count: 8, Capacity: 8},
		{Id: 5, First: 1<<20 - 4, Count: 4, Capacity: 4},
		{Id: 6, First: 900_004, Count: 0, Capacity: 4},
	}
	got, err := d.lists(services)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range services {
		want := make([]uint32, s.Count)
		for i := range want {
			want[i] = s.First + uint32(i)
		}
		if !slices.Equal(got[s.Id], want) {
			t.Errorf("service %d: %v, want %v", s.Id, got[s.Id], want)
		}
	}
	for _, torn := range []bpfobj.LbService{{First: 1, Count: 3, Capacity: 2}, {First: 1<<20 - 4, Count: 1, Capacity: 8}, {First: 1<<32 - 1, Count: 1, Capacity: 8}} {
		if _, err := d.lists([]bpfobj.LbService{torn}); err != errTorn {
			t.Errorf("%+v: %v", torn, err)
		}
	}
}
