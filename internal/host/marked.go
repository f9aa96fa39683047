// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Mark is the protocol (IFA_PROTO, Linux 5.18) of addresses that move between directors:
// the number of VRRP. The kernel keeps it with the address, so that a later process knows
// them, however the one that added them ended. ip address shows it as "proto 0x70".
const Mark = 112

// ifaProto is IFA_PROTO (linux/if_addr.h).
const ifaProto = 11

// AddMarked gives a device addresses with the mark. Those that it has already stay as they
// are, with or without the mark. IPv6 ones are usable at once. It goes on after an error.
func AddMarked(device *Device, prefixes []netip.Prefix) error {
	var errs []error
	for _, p := range prefixes {
		errs = append(errs, new(Links).AddMarked(device, p))
	}
	return errors.Join(errs...)
}

// AddMarked gives a device an address with the mark. One that it has already stays as it is,
// with or without the mark. An IPv6 one is usable at once.
func (l *Links) AddMarked(device *Device, p netip.Prefix) error {
	err := l.changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, device.Index, p, Mark)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("device %s: add address %s: %w", device.Name, p, needRoot(err))
	}
	return nil
}

// RemoveMarked takes those of the addresses from a device that have the mark. Without
// promote_secondaries Linux removes others of the same IPv4 network with the first one
// (RemovedWith): these are added again, and returned.
func (l *Links) RemoveMarked(device *Device, prefixes []netip.Prefix) (again []netip.Prefix, err error) {
	before, err := l.addressesOf(device.Index)
	if err != nil {
		return nil, fmt.Errorf("device %s: list addresses: %w", device.Name, err)
	}
	var errs []error
	removed, wanted := false, map[netip.Prefix]bool{}
	for _, p := range prefixes {
		wanted[p] = true
	}
	for _, a := range before {
		if a.Protocol != Mark || !wanted[a.Prefix] {
			continue
		}
		err := l.changeAddress(unix.RTM_DELADDR, unix.NLM_F_ACK, device.Index, a.Prefix, 0)
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) { // gone with another one, or with the device's state
			errs = append(errs, fmt.Errorf("device %s: delete address %s: %w", device.Name, a.Prefix, needRoot(err)))
		}
		removed = true
	}
	if removed {
		again, err = l.repairRemoved(device, before, wanted)
		errs = append(errs, err)
	}
	return again, errors.Join(errs...)
}

// repairRemoved adds the IPv4 addresses again that were removed with others.
func (l *Links) repairRemoved(device *Device, before []DeviceAddress, wanted map[netip.Prefix]bool) (again []netip.Prefix, err error) {
	if !slices.ContainsFunc(before, func(a DeviceAddress) bool { return a.Secondary }) {
		return nil, nil
	}
	after, err := l.addressesOf(device.Index)
	if err != nil {
		return nil, fmt.Errorf("device %s: list addresses: %w", device.Name, err)
	}
	there := Device{Addresses: after}
	var errs []error
	for _, a := range before {
		if !a.Secondary || wanted[a.Prefix] && a.Protocol == Mark {
			continue
		}
		if there.Has(a.Prefix) {
			continue
		}
		err := l.changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, device.Index, a.Prefix, a.Protocol)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("device %s: add address %s again: %w", device.Name, a.Prefix, needRoot(err)))
			continue
		}
		again = append(again, a.Prefix)
	}
	return again, errors.Join(errs...)
}

// changeAddress adds or deletes an address. Duplicate address detection does not take place:
// it lasts a second, and the other director may still have the address for a moment.
func (l *Links) changeAddress(kind, flags, index int, p netip.Prefix, protocol uint8) error {
	family, address := unix.AF_INET, p.Addr().AsSlice()
	if p.Addr().Is6() {
		family = unix.AF_INET6
	}
	m := nl.NewIfAddrmsg(family)
	m.Index, m.Prefixlen = uint32(index), uint8(p.Bits())
	parts := []nl.NetlinkRequestData{m, nl.NewRtAttr(unix.IFA_LOCAL, address), nl.NewRtAttr(unix.IFA_ADDRESS, address)}
	if kind == unix.RTM_NEWADDR {
		if family == unix.AF_INET6 {
			m.Flags = unix.IFA_F_NODAD
		} else if broadcast, has := broadcastOf(p); has {
			parts = append(parts, nl.NewRtAttr(unix.IFA_BROADCAST, broadcast))
		}
		if protocol != 0 {
			parts = append(parts, nl.NewRtAttr(ifaProto, []byte{protocol}))
		}
	}
	_, err := l.request(kind, flags, 0, parts...)
	return err
}

// broadcastOf is the broadcast address of an IPv4 network of more than two addresses.
func broadcastOf(p netip.Prefix) ([]byte, bool) {
	if p.Bits() > 30 {
		return nil, false
	}
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 0x80 >> (i % 8)
	}
	return a[:], true
}
