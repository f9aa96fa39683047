// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// order is an array map of so many numbers, each of which is its place.
func order(t *testing.T, n uint32) *ebpf.Map {
	t.Helper()
	testenv.Root(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := m.BatchUpdate(keys, keys, nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLookupSpan(t *testing.T) {
	const size = 100_000
	m := order(t, size)
	for _, c := range []struct{ first, n, want uint32 }{
		{0, 0, 0}, {0, 7, 7}, {0, size, size}, {5, 0, 0}, {1, 1, 1}, {70_000, 20_000, 20_000}, {size - 3, 3, 3}, {size - 3, 9, 3},
	} {
		got, err := lookupSpan[uint32](m, c.first, c.n)
		if err != nil || uint32(len(got)) != c.want {
			t.Errorf("%+v: %d values, %v", c, len(got), err)
		}
		for i, v := range got {
			if v != c.first+uint32(i) {
				t.Fatalf("%+v: value %d is %d", c, i, v)
			}
		}
	}
	if _, err := lookupSpan[uint64](m, 1, 1); err == nil {
		t.Error("values of another size are read")
	}
}

// Lists are read wherever they lie.
func TestLists(t *testing.T) {
	d := &Director{}
	d.maps.Order = order(t, 1<<20)
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
