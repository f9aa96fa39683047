// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Announcer announces addresses by one packet socket, which is open already when haste is
// needed. Unlike Announce it does not require that the device has the address yet.
type Announcer struct{ fd int }

// NewAnnouncer opens one in the calling thread's network namespace.
func NewAnnouncer() (*Announcer, error) {
	// Without a protocol it receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("announce addresses: %w", needRoot(err))
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PRIORITY, ControlPriority); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("announce addresses: SO_PRIORITY: %w", err)
	}
	return &Announcer{fd}, nil
}

// ControlPriority is TC_PRIO_INTERACTIVE, the highest SO_PRIORITY without a capability:
// queueing disciplines send it first.
const ControlPriority = 6

// Close closes the socket.
func (a *Announcer) Close() error { return unix.Close(a.fd) }

// Announcement is a packet for a device's link.
type Announcement struct {
	packet []byte
	to     unix.SockaddrLinklayer
}

// Announcements are those of addresses of a device: gratuitous ARP requests, and
// unsolicited neighbour advertisements with the Override flag. A device without an
// Ethernet address has none.
func (d *Device) Announcements(addresses []netip.Addr) (all []Announcement) {
	if len(d.MAC) != 6 || [6]byte(d.MAC) == [6]byte{} { // a loopback's is 0
		return nil
	}
	router := routes(d.Name)
	for _, a := range addresses {
		if a.Is4() {
			to := broadcast(&net.Interface{Index: d.Index})
			all = append(all, Announcement{arpPacket(a, a, d.MAC), *to})
			continue
		}
		to := unix.SockaddrLinklayer{Protocol: protocolIPv6, Ifindex: d.Index, Halen: 6, Addr: [8]byte{0x33, 0x33, 0, 0, 0, 1}}
		all = append(all, Announcement{advertisementPacket(a, d.MAC, router), to})
	}
	return all
}

// Send sends an announcement.
func (a *Announcer) Send(n *Announcement) error { return unix.Sendto(a.fd, n.packet, 0, &n.to) }

const (
	protocolIPv6 = unix.ETH_P_IPV6>>8 | unix.ETH_P_IPV6&0xff<<8 // in network byte order
	ipv6Header   = 40
)

// allNodes is the destination of unsolicited advertisements (RFC 4861, 7.2.6).
var allNodes = netip.MustParseAddr("ff02::1")

// advertisementPacket is an unsolicited neighbour advertisement with its IPv6 header.
func advertisementPacket(a netip.Addr, mac net.HardwareAddr, router bool) []byte {
	return neighbourPacket(a, allNodes, advertisement(a, mac, router))
}

// neighbourPacket is a message of neighbour discovery with its checksum and IPv6 header.
func neighbourPacket(from, to netip.Addr, message []byte) []byte {
	b := make([]byte, ipv6Header, ipv6Header+len(message))
	b[0], b[1] = 0x6c, 0 // version 6, class CS6
	binary.BigEndian.PutUint16(b[4:], uint16(len(message)))
	b[6], b[7] = protocolICMPv6, neighbourHops
	source, destination := from.As16(), to.As16()
	copy(b[8:], source[:])
	copy(b[24:], destination[:])
	sum := uint32(protocolICMPv6) + uint32(len(message))
	for _, part := range [][]byte{b[8:ipv6Header], message} { // the checksum is 0 yet
		for ; len(part) >= 2; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum))
	return append(b, message...)
}

// Solicitation asks a device's link for the hardware address of a neighbour: an ARP request,
// or a neighbour solicitation (RFC 4861, 7.2.2), from an address of the device. has is false
// if the device has no Ethernet address.
func (d *Device) Solicitation(from, neighbour netip.Addr) (n Announcement, has bool) {
	if len(d.MAC) != 6 {
		return n, false
	}
	if from.Is4() {
		return Announcement{arpPacket(from, neighbour, d.MAC), *broadcast(&net.Interface{Index: d.Index})}, true
	}
	last := neighbour.As16()
	group := netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: last[13], 14: last[14], 15: last[15]})
	return Announcement{
		neighbourPacket(from, group, neighbourMessage(solicitationType, 0, neighbour, sourceLinkLayer, d.MAC)),
		unix.SockaddrLinklayer{Protocol: protocolIPv6, Ifindex: d.Index, Halen: 6, Addr: [8]byte{0x33, 0x33, 0xff, last[13], last[14], last[15]}},
	}, true
}

// Unresolved reports whether the kernel looks for the hardware address of a device's neighbour,
// or has failed to find it. A neighbour that it does not know is not unresolved.
func (l *Links) Unresolved(d *Device, neighbour netip.Addr) bool {
	family := unix.AF_INET
	if neighbour.Is6() {
		family = unix.AF_INET6
	}
	messages, err := l.request(unix.RTM_GETNEIGH, 0, unix.RTM_NEWNEIGH,
		&netlink.Ndmsg{Family: uint8(family), Index: uint32(d.Index)}, nl.NewRtAttr(unix.NDA_DST, neighbour.AsSlice()))
	if err != nil || len(messages) == 0 || len(messages[0]) < unix.SizeofNdMsg {
		return false // such as ENOENT
	}
	state := binary.NativeEndian.Uint16(messages[0][8:]) // struct ndmsg: family, padding, index, state
	return state&(unix.NUD_INCOMPLETE|unix.NUD_FAILED) != 0
}
