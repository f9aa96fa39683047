// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"imbang/internal/host"
)

// passPeers lets the director put frames for these devices into their other
// ends at once (bpf_redirect_peer), where they are veth pairs into another
// network namespace and nothing is to be done on the way: that spares a queue
// and a turn of the kernel for each packet. The map holds no others.
func (d *Director) passPeers(devices ...int) error {
	var old uint32
	var all []uint32
	for it := d.maps.Peers.Iterate(); it.Next(&old, new(uint32)); {
		all = append(all, old)
	}
	for _, old := range all {
		if err := d.maps.Peers.Delete(old); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget a device's other end: %w", err)
		}
	}
	for _, dev := range devices {
		leads, err := host.LeadsElsewhere(dev)
		if err != nil {
			return err
		}
		if !leads {
			continue
		}
		if err := d.maps.Peers.Put(uint32(dev), uint32(1)); err != nil {
			return fmt.Errorf("note a device's other end: %w", err)
		}
	}
	return nil
}

// WithoutPeers lets the director send every frame through its device, as other
// forwarders do, until it is attached again.
func (d *Director) WithoutPeers() error { return d.exclusively(func() error { return d.passPeers() }) }
