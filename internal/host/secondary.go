// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RemovedWith are the addresses that Linux removes with an address of a device of the
// calling thread's network namespace: if it is the first one of an IPv4 network there, all
// others of that network, unless promote_secondaries is on (inet_del_ifa).
func RemovedWith(dev string, p netip.Prefix) ([]netip.Prefix, error) {
	if !p.Addr().Is4() || promotes("all") || promotes(dev) {
		return nil, nil
	}
	link, err := netlink.LinkByName(dev)
	if err != nil {
		return nil, noDevice(dev, err)
	}
	all, err := addresses(link, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("device %s: list addresses: %w", dev, err)
	}
	var with []netip.Prefix
	for _, a := range all {
		addr, _ := netip.AddrFromSlice(a.IP.To4())
		bits, _ := a.Mask.Size()
		one := netip.PrefixFrom(addr, bits)
		switch {
		case one == p && a.Flags&unix.IFA_F_SECONDARY != 0:
			return nil, nil
		case one != p && a.Flags&unix.IFA_F_SECONDARY != 0 && one.Masked() == p.Masked():
			with = append(with, one)
		}
	}
	return with, nil
}

// promotes reports whether a removed address leaves its network to the next one: the
// setting is on if that of the device or that of all is.
func promotes(dev string) bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + dev + "/promote_secondaries")
	return err == nil && strings.TrimSpace(string(text)) != "0"
}
