// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Kept is the protocol (IFA_PROTO, as Mark) of addresses that imbang run added: a later process knows
// them, whatever became of files and of the director. ip address shows it as "proto 0x71".
const Kept = Mark + 1

// AddKept gives a device of the calling thread's network namespace an address, as AddAddress does, and
// marks it.
func AddKept(dev string, p netip.Prefix) error {
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return noDevice(dev, err)
	}
	err = new(Links).changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, i.Index, p, Kept)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("device %s: add address %s: %w", dev, p, needRoot(err))
	}
	return nil
}

// EachKept calls for the addresses with that mark.
func EachKept(call func(dev string, p netip.Prefix)) error {
	devices, err := new(Links).Devices()
	if err != nil {
		return err
	}
	for _, d := range devices {
		for _, a := range d.Addresses {
			if a.Protocol == Kept {
				call(d.Name, a.Prefix)
			}
		}
	}
	return nil
}
