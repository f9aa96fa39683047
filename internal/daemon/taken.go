// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/daemon/config"
	"imbang/internal/host"
)

const (
	// takenPatience is how long another owner of an address may take to answer. The daemon
	// does nothing else meanwhile.
	takenPatience = 100 * time.Millisecond
	// takenAgain is the time after which an address that another machine had is looked for
	// again.
	takenAgain = 10 * time.Second
)

// taken is a machine that has an address which this one is to add.
type taken struct {
	by   net.HardwareAddr
	when time.Time
}

// lookForOwners notes which of some addresses, which the host does not have, another machine
// on the link has: two owners would share the packets at random. An error is none here: a
// device that is down, or has no Ethernet address, leads to no other owner.
func (d *Daemon) lookForOwners(missing []config.Address, now time.Time) {
	ask := map[string][]netip.Addr{}
	for _, a := range missing {
		if before, is := d.taken[a]; is && now.Sub(before.when) < takenAgain {
			continue
		}
		delete(d.taken, a)
		ask[a.Device] = append(ask[a.Device], a.Prefix.Addr())
	}
	for device, addresses := range ask {
		found, err := host.Answered(device, addresses, takenPatience)
		if err != nil || len(found) == 0 {
			continue
		}
		own := hardwareAddresses()
		for _, a := range missing {
			mac, is := found[a.Prefix.Addr()]
			// Another device of this machine may answer, if both are on one network.
			if is && a.Device == device && !slices.Contains(own, mac.String()) {
				d.taken[a] = taken{mac, now}
			}
		}
	}
}

// hardwareAddresses are those of this network namespace's devices.
func hardwareAddresses() (all []string) {
	devices, _ := net.Interfaces()
	for _, one := range devices {
		all = append(all, one.HardwareAddr.String())
	}
	return all
}

// takenText says why an address is not added.
func takenText(a config.Address, t taken) string {
	return fmt.Sprintf("%s is not added to %s: the machine with hardware address %s has it. Remove it there; an address that moves between directors does not belong in director.addresses", a.Prefix, a.Device, t.by)
}
