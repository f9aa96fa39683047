// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Beside are the devices in whose networks an address is, by index. own is set if one of the
// devices has the address itself.
func Beside(devices map[string]*Device, a netip.Addr) (on []*Device, own bool) {
	for _, d := range slices.SortedFunc(maps.Values(devices), func(a, b *Device) int { return cmp.Compare(a.Index, b.Index) }) {
		beside := false
		for _, one := range d.Addresses {
			own = own || one.Prefix.Addr() == a
			beside = beside || len(d.MAC) == 6 && one.Prefix.Contains(a)
		}
		if beside {
			on = append(on, d)
		}
	}
	return on, own
}
