// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"slices"

	"imbang/internal/bpfobj"
)

// spanGap is how many elements between two lists are read rather than skipped.
const spanGap = pageSlots

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
