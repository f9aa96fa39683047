// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// LeadsElsewhere reports whether a device of this network namespace, by its
// index, is one end of a veth pair whose other end is in another namespace, and
// has no queueing discipline, which shapes, filters or counts what leaves by it.
func LeadsElsewhere(index int) (bool, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return false, fmt.Errorf("device #%d: %w", index, err)
	}
	if link.Type() != "veth" || link.Attrs().NetNsID < 0 {
		return false, nil
	}
	disciplines, err := netlink.QdiscList(link)
	if err != nil {
		return false, fmt.Errorf("device %s: queueing disciplines: %w", link.Attrs().Name, err)
	}
	for _, q := range disciplines {
		if kind := q.Type(); kind != "noqueue" && kind != "ingress" {
			return false, nil
		}
	}
	return true, nil
}
