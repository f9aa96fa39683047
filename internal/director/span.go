// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
)

// spanGap is how many elements between two lists are read rather than skipped: about what
// costs as much as another system call.
const spanGap = 8192

// lists reads the servers of services, by service id.
func (d *Director) lists(services []bpfobj.LbService) (map[uint32][]uint32, error) {
	lists := make(map[uint32][]uint32, len(services))
	byPlace := make([]*bpfobj.LbService, 0, len(services))
	for i := range services {
		s := &services[i]
		if s.Count > s.Capacity || uint64(s.First)+uint64(s.Capacity) > uint64(d.maps.Order.MaxEntries()) {
			return nil, errTorn
		}
		lists[s.Id] = []uint32{}
		if s.Count > 0 {
			byPlace = append(byPlace, s)
		}
	}
	slices.SortFunc(byPlace, func(a, b *bpfobj.LbService) int { return cmp.Compare(a.First, b.First) })
	for len(byPlace) > 0 {
		first := byPlace[0].First
		end, n := first, 0
		for _, s := range byPlace {
			if s.First > end+spanGap {
				break
			}
			end, n = max(end, s.First+s.Count), n+1
		}
		slots, err := lookupSpan[uint32](d.maps.Order, first, end-first)
		if err != nil {
			return nil, err
		}
		for _, s := range byPlace[:n] {
			lists[s.Id] = slices.Clone(slots[s.First-first : s.First-first+s.Count])
		}
		byPlace = byPlace[n:]
	}
	return lists, nil
}

// batchAttr is the part of union bpf_attr (linux/bpf.h) for BPF_MAP_LOOKUP_BATCH on
// machines of 64 bits.
type batchAttr struct {
	from, to     unsafe.Pointer // keys: the one before the first, and the last one read
	keys, values unsafe.Pointer
	count        uint32 // of elements: to be read, then read
	mapFD        uint32
	elemFlags    uint64
	flags        uint64
}

// lookupSpan reads n values of an array map, from the first-th on, in one pass: batches of
// package ebpf begin at the start of the map. What is behind its end is missing.
func lookupSpan[V any](m *ebpf.Map, first, n uint32) ([]V, error) {
	if first == 0 || n == 0 {
		return lookupAll[V](m, n)
	}
	if size := uint32(unsafe.Sizeof(*new(V))); size != m.ValueSize() {
		return nil, fmt.Errorf("values of %d bytes are read as of %d", m.ValueSize(), size)
	}
	bounds, keys, values := []uint32{first - 1, 0}, make([]uint32, n), make([]V, n)
	attr := batchAttr{
		from: unsafe.Pointer(&bounds[0]), to: unsafe.Pointer(&bounds[1]),
		keys: unsafe.Pointer(&keys[0]), values: unsafe.Pointer(&values[0]),
		count: n, mapFD: uint32(m.FD()),
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	for _, p := range []unsafe.Pointer{attr.from, attr.keys, attr.values} {
		pins.Pin(p)
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_BATCH, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(m)
	if errno != 0 && !errors.Is(errno, unix.ENOENT) {
		return nil, os.NewSyscallError("bpf", errno)
	}
	return values[:attr.count], nil
}
