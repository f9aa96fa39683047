// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Answered asks a device's link who has addresses, and returns the hardware address of
// another machine that answers for one: for IPv4 by an ARP probe (RFC 5227, 2.1.1), for
// IPv6 by a neighbour solicitation (RFC 4861, 7.2.2). It waits for the patience, whatever
// is answered. The device of the calling thread's network namespace does not have the
// addresses, and needs one of its own for IPv6.
func Answered(dev string, addresses []netip.Addr, patience time.Duration) (map[netip.Addr]net.HardwareAddr, error) {
	link, err := net.InterfaceByName(dev)
	if err != nil {
		return nil, fmt.Errorf("no such device %q in this network namespace (ip link shows them)", dev)
	}
	if len(link.HardwareAddr) != 6 {
		return nil, fmt.Errorf("device %s has no Ethernet address: addresses cannot be looked for there", dev)
	}
	p := prober{link: link, found: map[netip.Addr]net.HardwareAddr{}, asked: map[netip.Addr]bool{}}
	defer p.close()
	for _, a := range addresses {
		if err := p.ask(a); err != nil {
			return nil, linkError(dev, "look for "+a.String(), err)
		}
	}
	time.Sleep(patience)
	if err := p.read(); err != nil {
		return nil, fmt.Errorf("device %s: look for addresses: %w", dev, err)
	}
	return p.found, nil
}

// prober has a socket for each family that was asked for.
type prober struct {
	link  *net.Interface
	arp   int // 0: none
	icmp  net.PacketConn
	asked map[netip.Addr]bool
	found map[netip.Addr]net.HardwareAddr
}

func (p *prober) close() {
	if p.arp != 0 {
		unix.Close(p.arp)
	}
	if p.icmp != nil {
		p.icmp.Close()
	}
}

// ask sends one question.
func (p *prober) ask(a netip.Addr) (err error) {
	p.asked[a] = true
	if a.Is4() {
		if p.arp == 0 {
			if p.arp, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
				return err
			}
			if err := unix.Bind(p.arp, &unix.SockaddrLinklayer{Protocol: protocolARP, Ifindex: p.link.Index}); err != nil {
				return err
			}
		}
		return unix.Sendto(p.arp, arpPacket(netip.IPv4Unspecified(), a, p.link.HardwareAddr), 0, broadcast(p.link))
	}
	if p.icmp == nil {
		if p.icmp, err = net.ListenPacket(fmt.Sprintf("ip6:%d", protocolICMPv6), "::"); err != nil {
			return err
		}
		var only ipv6.ICMPFilter
		only.SetAll(true)
		only.Accept(ipv6.ICMPTypeNeighborAdvertisement)
		if err := ipv6.NewPacketConn(p.icmp).SetICMPFilter(&only); err != nil {
			return err
		}
	}
	conn := ipv6.NewPacketConn(p.icmp)
	if err := errors.Join(conn.SetMulticastInterface(p.link), conn.SetMulticastHopLimit(neighbourHops), conn.SetMulticastLoopback(false)); err != nil {
		return err
	}
	ip := a.As16()
	group := net.IP{0xff, 2, 10: 0, 11: 1, 12: 0xff, 13: ip[13], 14: ip[14], 15: ip[15]} // solicited-node (RFC 4291, 2.7.1)
	_, err = conn.WriteTo(neighbourMessage(solicitationType, 0, a, sourceLinkLayer, p.link.HardwareAddr), nil, &net.IPAddr{IP: group, Zone: p.link.Name})
	return err
}

// read takes the answers that have come.
func (p *prober) read() error {
	b := make([]byte, 1500)
	for p.arp != 0 {
		n, _, err := unix.Recvfrom(p.arp, b, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return err
		}
		p.readARP(b[:n])
	}
	if p.icmp == nil {
		return nil
	}
	for {
		if err := p.icmp.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return err
		}
		n, _, err := p.icmp.ReadFrom(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		p.readAdvertisement(b[:n])
	}
}

// readARP notes the sender of a reply, or of an announcement.
func (p *prober) readARP(b []byte) {
	if len(b) < arpLength || binary.BigEndian.Uint16(b[2:]) != unix.ETH_P_IP || b[4] != 6 || b[5] != 4 {
		return
	}
	p.note(netip.AddrFrom4([4]byte(b[14:18])), b[8:14])
}

func (p *prober) readAdvertisement(b []byte) {
	if len(b) < neighbourLength || b[0] != advertisementType || b[24] != targetLinkLayer || b[25] != linkLayerOptionUnits {
		return
	}
	p.note(netip.AddrFrom16([16]byte(b[8:24])), b[26:32])
}

func (p *prober) note(a netip.Addr, mac []byte) {
	if p.asked[a] && string(mac) != string(p.link.HardwareAddr) {
		p.found[a] = append(net.HardwareAddr(nil), mac...)
	}
}
