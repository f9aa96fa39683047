// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Device is a network device as it was at one time.
type Device struct {
	Index int
	Name  string
	MAC   net.HardwareAddr // empty: it has none
	// Up: it is set up and has a carrier, or a state that does not say so.
	Up        bool
	MTU       int
	Addresses []DeviceAddress // in the kernel's order

	index   map[netip.Prefix]bool // of Addresses, if there are many
	indexed int                   // how many
}

// DeviceAddress is an address of a device.
type DeviceAddress struct {
	Prefix    netip.Prefix
	Protocol  uint8 // who added it: Mark, or another number
	Secondary bool  // IPv4: another one of the network came first
	Unusable  bool  // IPv6: duplicate address detection is under way, or failed
}

// searched is how many addresses are searched through. There can be thousands.
const searched = 16

// Has reports whether the device has an address. It is for one goroutine at a time.
func (d *Device) Has(p netip.Prefix) bool {
	if len(d.Addresses) > searched {
		if d.indexed != len(d.Addresses) {
			d.index, d.indexed = make(map[netip.Prefix]bool, len(d.Addresses)), len(d.Addresses)
			for _, a := range d.Addresses {
				d.index[a.Prefix] = true
			}
		}
		return d.index[p]
	}
	return slices.ContainsFunc(d.Addresses, func(a DeviceAddress) bool { return a.Prefix == p })
}

// Devices reads all devices of the calling thread's network namespace, by name.
func Devices() (map[string]*Device, error) { return new(Links).Devices() }

// Devices reads all devices, by name.
func (l *Links) Devices() (map[string]*Device, error) {
	links, err := l.request(unix.RTM_GETLINK, unix.NLM_F_DUMP, unix.RTM_NEWLINK, nl.NewIfInfomsg(unix.AF_UNSPEC))
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	byName, byIndex := map[string]*Device{}, map[int]*Device{}
	for _, m := range links {
		if d, ok := parseDevice(m); ok {
			byName[d.Name], byIndex[d.Index] = d, d
		}
	}
	err = l.eachAddress(func(index int, a DeviceAddress) {
		if d := byIndex[index]; d != nil {
			d.Addresses = append(d.Addresses, a)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return byName, nil
}

func parseDevice(m []byte) (*Device, bool) {
	if len(m) < unix.SizeofIfInfomsg {
		return nil, false
	}
	info := nl.DeserializeIfInfomsg(m)
	attributes, err := nl.ParseRouteAttr(m[unix.SizeofIfInfomsg:])
	if err != nil {
		return nil, false
	}
	const up = unix.IFF_UP | unix.IFF_RUNNING // RUNNING: the operational state is up or unknown
	d := &Device{Index: int(info.Index), Up: info.Flags&up == up}
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.IFLA_IFNAME:
			d.Name = string(bytes.TrimRight(a.Value, "\x00"))
		case unix.IFLA_ADDRESS:
			d.MAC = a.Value
		case unix.IFLA_MTU:
			if len(a.Value) >= 4 {
				d.MTU = int(binary.NativeEndian.Uint32(a.Value))
			}
		}
	}
	return d, d.Name != ""
}

// addressesOf are the addresses of one device.
func (l *Links) addressesOf(index int) (all []DeviceAddress, err error) {
	err = l.eachAddress(func(i int, a DeviceAddress) {
		if i == index {
			all = append(all, a)
		}
	})
	return all, err
}

// eachAddress calls f for each address of each device.
func (l *Links) eachAddress(f func(index int, a DeviceAddress)) error {
	messages, err := l.request(unix.RTM_GETADDR, unix.NLM_F_DUMP, unix.RTM_NEWADDR, nl.NewIfAddrmsg(unix.AF_UNSPEC))
	if err != nil {
		return err
	}
	for _, m := range messages {
		if index, a, ok := parseAddress(m); ok {
			f(index, a)
		}
	}
	return nil
}

func parseAddress(m []byte) (index int, a DeviceAddress, ok bool) {
	if len(m) < unix.SizeofIfAddrmsg {
		return 0, a, false
	}
	info := nl.DeserializeIfAddrmsg(m)
	attributes, err := nl.ParseRouteAttr(m[unix.SizeofIfAddrmsg:])
	if err != nil {
		return 0, a, false
	}
	var local, address netip.Addr
	flags := uint32(info.Flags)
	for _, t := range attributes {
		switch t.Attr.Type {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(t.Value)
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(t.Value)
		case unix.IFA_FLAGS:
			if len(t.Value) >= 4 {
				flags = binary.NativeEndian.Uint32(t.Value)
			}
		case ifaProto:
			if len(t.Value) >= 1 {
				a.Protocol = t.Value[0]
			}
		}
	}
	if !local.IsValid() {
		local = address // as IPv6 has it
	}
	a.Prefix = netip.PrefixFrom(local, int(info.Prefixlen))
	a.Secondary = local.Is4() && flags&unix.IFA_F_SECONDARY != 0
	a.Unusable = local.Is6() && (flags&unix.IFA_F_TENTATIVE != 0 && flags&unix.IFA_F_OPTIMISTIC == 0 || flags&unix.IFA_F_DADFAILED != 0)
	return int(info.Index), a, a.Prefix.IsValid()
}

// DeviceWatch is a socket that becomes readable when devices or addresses of a network
// namespace change.
type DeviceWatch struct {
	fd     int
	buffer []byte
}

// NewDeviceWatch opens one in the calling thread's network namespace.
func NewDeviceWatch() (*DeviceWatch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	const groups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch devices: %w", err)
	}
	return &DeviceWatch{fd: fd, buffer: make([]byte, 1<<16)}, nil
}

// FD is for poll(2).
func (w *DeviceWatch) FD() int { return w.fd }

// Close closes the socket.
func (w *DeviceWatch) Close() error { return unix.Close(w.fd) }

// Drain reads all notifications and reports whether there were any; some may have been lost:
// what changed is for the caller to find out (Devices).
func (w *DeviceWatch) Drain() (changed bool) {
	for {
		_, _, err := unix.Recvfrom(w.fd, w.buffer, unix.MSG_DONTWAIT)
		switch {
		case err == nil, errors.Is(err, syscall.ENOBUFS): // ENOBUFS: some were lost
			changed = true
		case errors.Is(err, syscall.EINTR):
		default:
			return changed
		}
	}
}
