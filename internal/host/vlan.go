// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// VLANOn is the name of a VLAN's device on the device of an index, in the
// calling thread's network namespace; "" if there is none.
func VLANOn(index int) (string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return "", fmt.Errorf("devices: %w", err)
	}
	for _, l := range links {
		if l.Type() == "vlan" && l.Attrs().ParentIndex == index {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
}
