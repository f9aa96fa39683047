// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Announce tells a device's link that an address is at the device's hardware address, so
// that neighbours send there what they sent to the address's last owner: for IPv4 by an
// ARP announcement (RFC 5227, 2.3), for IPv6 by an unsolicited neighbour advertisement with
// the Override flag (RFC 4861, 7.2.6). The device of the calling thread's network namespace
// has the address.
func Announce(dev string, a netip.Addr) error {
	link, err := net.InterfaceByName(dev)
	if err != nil {
		return fmt.Errorf("no such device %q in this network namespace (ip link shows them)", dev)
	}
	if len(link.HardwareAddr) != 6 {
		return fmt.Errorf("device %s has no Ethernet address: %s cannot be announced there", dev, a)
	}
	if a.Is4() {
		err = sendARP(link, arpPacket(a, a, link.HardwareAddr))
	} else {
		err = sendAdvertisement(link, a, advertisement(a, link.HardwareAddr, routes(dev)))
	}
	return linkError(dev, "announce "+a.String(), err)
}

// linkError says what is wrong with a device of which a link is to be told or asked.
func linkError(dev, what string, err error) error {
	switch {
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("device %s: %s: the device is down (ip link set %s up)", dev, what, dev)
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("device %s: %s: the device is down, or has no IPv6 (ip link set %s up; sysctl net.ipv6.conf.%s.disable_ipv6)", dev, what, dev, dev)
	case err != nil:
		return fmt.Errorf("device %s: %s: %w", dev, what, needRoot(err))
	}
	return nil
}

const (
	protocolARP = unix.ETH_P_ARP>>8 | unix.ETH_P_ARP&0xff<<8 // in network byte order
	arpLength   = 28                                         // of IPv4 on Ethernet
)

// arpPacket is a request for an address (RFC 826): by its owner, from itself, it is an
// announcement; from 0.0.0.0 it is a probe (RFC 5227).
func arpPacket(from, to netip.Addr, mac net.HardwareAddr) []byte {
	const ethernet, request = 1, 1
	sender, target := from.As4(), to.As4()
	b := binary.BigEndian.AppendUint16(make([]byte, 0, arpLength), ethernet)
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, byte(len(mac)), byte(len(sender)))
	b = binary.BigEndian.AppendUint16(b, request)
	b = append(append(b, mac...), sender[:]...)
	return append(append(b, make([]byte, len(mac))...), target[:]...)
}

// broadcast is every machine on a link.
func broadcast(link *net.Interface) *unix.SockaddrLinklayer {
	return &unix.SockaddrLinklayer{Protocol: protocolARP, Ifindex: link.Index, Halen: 6, Addr: [8]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}
}

func sendARP(link *net.Interface, packet []byte) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, packet, 0, broadcast(link))
}

// Of neighbour discovery (RFC 4861, 4.3, 4.4 and 4.6.1).
const (
	solicitationType     = 135
	advertisementType    = 136
	advertisedByRouter   = 0x80
	advertisedOverride   = 0x20
	sourceLinkLayer      = 1 // options
	targetLinkLayer      = 2
	linkLayerOptionUnits = 1 // of 8 bytes
	neighbourLength      = 32
	neighbourHops        = 255
	protocolICMPv6       = 58
)

// neighbourMessage is a solicitation or an advertisement with an option, for whose
// checksum the kernel cares.
func neighbourMessage(kind, flags byte, target netip.Addr, option byte, mac net.HardwareAddr) []byte {
	ip := target.As16()
	b := append(make([]byte, 0, neighbourLength), kind, 0, 0, 0, flags, 0, 0, 0)
	b = append(b, ip[:]...)
	return append(append(b, option, linkLayerOptionUnits), mac...)
}

// advertisement is an unsolicited one. A router says that it is one, or neighbours drop
// their routes through it.
func advertisement(a netip.Addr, mac net.HardwareAddr, router bool) []byte {
	flags := byte(advertisedOverride)
	if router {
		flags |= advertisedByRouter
	}
	return neighbourMessage(advertisementType, flags, a, targetLinkLayer, mac)
}

func sendAdvertisement(link *net.Interface, a netip.Addr, packet []byte) error {
	if a.IsLinkLocalUnicast() {
		a = a.WithZone(link.Name)
	}
	conn, err := net.ListenPacket(fmt.Sprintf("ip6:%d", protocolICMPv6), a.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	p := ipv6.NewPacketConn(conn)
	if err := p.SetMulticastInterface(link); err != nil {
		return err
	}
	if err := p.SetMulticastHopLimit(neighbourHops); err != nil {
		return err
	}
	_, err = p.WriteTo(packet, nil, &net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: link.Name})
	return err
}

// routes reports whether IPv6 packets are forwarded through a device.
func routes(dev string) bool {
	text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + dev + "/forwarding")
	return err == nil && strings.TrimSpace(string(text)) != "0"
}
