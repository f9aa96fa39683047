// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// HasAddress reports whether a device of the calling thread's network namespace has an
// address, with whatever prefix length.
func HasAddress(dev string, a netip.Addr) (bool, error) {
	_, has, err := FindAddress(dev, a)
	return has, err
}

// FindAddress finds an address of a device of the calling thread's network namespace, with
// its prefix length.
func FindAddress(dev string, a netip.Addr) (p netip.Prefix, has bool, err error) {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return p, false, noDevice(dev, err)
	}
	family := unix.AF_INET
	if a.Is6() {
		family = unix.AF_INET6
	}
	all, err := addresses(link, family)
	if err != nil {
		return p, false, fmt.Errorf("device %s: list addresses: %w", dev, err)
	}
	for _, one := range all {
		if got, ok := netip.AddrFromSlice(one.IP); ok && got.Unmap() == a {
			bits, _ := one.Mask.Size()
			return netip.PrefixFrom(a, bits), true, nil
		}
	}
	return p, false, nil
}

// addresses are those of a device and a family; nil: of all devices.
func addresses(link netlink.Link, family int) ([]netlink.Addr, error) {
	return untilWhole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
}

// OwnAddresses are all addresses of the devices of the calling thread's network namespace.
// They are asked for by family: a question about all families waits for the kernel's lock
// of all devices (rtnl_dump_all), which the removal of a namespace holds for long; since
// Linux 6.9 one about a family does not.
func OwnAddresses() ([]netip.Addr, error) {
	var own []netip.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := addresses(nil, family)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, one := range all {
			if a, ok := netip.AddrFromSlice(one.IP); ok {
				own = append(own, a.Unmap())
			}
		}
	}
	return own, nil
}

// AddAddress gives a device of the calling thread's network namespace an address. IPv6
// ones are usable at once, without duplicate address detection.
func AddAddress(dev string, p netip.Prefix) error {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return noDevice(dev, err)
	}
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, a); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("device %s: add address %s: %w", dev, p, needRoot(err))
	}
	return nil
}

// DeleteAddress takes an address from a device, if it has it.
func DeleteAddress(dev string, p netip.Prefix) error {
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return noDevice(dev, err)
	}
	if err := netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(p)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("device %s: delete address %s: %w", dev, p, needRoot(err))
	}
	return nil
}

// DeviceIsUp reports whether there is a device of that name, and it is up.
func DeviceIsUp(dev string) (exists, up bool) {
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return false, false
	}
	return true, i.Flags&net.FlagUp != 0
}

func noDevice(dev string, err error) error {
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return fmt.Errorf("no such device %q in this network namespace (ip link shows them)", dev)
	}
	return fmt.Errorf("device %s: %w", dev, err)
}

// Changes sends a value when links or addresses of the calling thread's network namespace
// have changed: what changed is for the receiver to find out. The channel is closed
// when the context ends.
func Changes(ctx context.Context) (<-chan struct{}, error) {
	links, addrs := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
	done := make(chan struct{})
	ignore := func(error) {} // a lost message is made up for by the next look
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: ignore}); err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{ErrorCallback: ignore}); err != nil {
		close(done)
		return nil, fmt.Errorf("watch addresses: %w", err)
	}
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		defer close(done)
		for links != nil || addrs != nil {
			var open bool
			select {
			case <-ctx.Done():
				return
			case _, open = <-links:
				if !open {
					links = nil
				}
			case _, open = <-addrs:
				if !open {
					addrs = nil
				}
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
		<-ctx.Done() // both subscriptions have failed
	}()
	return changes, nil
}

// Forwarding reports whether the kernel forwards packets of a family.
func Forwarding(six bool) (bool, error) {
	text, err := os.ReadFile(forwardingFile(six))
	if err != nil {
		return false, fmt.Errorf("forwarding: %w", err)
	}
	return strings.TrimSpace(string(text)) != "0", nil
}

// Forward turns it on.
func Forward(six bool) error {
	if err := os.WriteFile(forwardingFile(six), []byte("1"), 0); err != nil {
		return fmt.Errorf("forwarding: %w", err)
	}
	return nil
}

func forwardingFile(six bool) string {
	if six {
		return "/proc/sys/net/ipv6/conf/all/forwarding"
	}
	return "/proc/sys/net/ipv4/ip_forward"
}
