// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"net"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Packet describes an Ethernet frame with a packet of TCP or UDP, of the IP
// version that its addresses have; fragments and options are for IPv4 alone. It
// is a value: each method returns a changed copy, so that a test says what comes
// out as a change of what goes in.
type Packet struct {
	protocol       layers.IPProtocol
	src, dst       netip.AddrPort
	srcMAC, dstMAC string
	flags          string // of TCP: letters of SAFRPU
	ttl            uint8
	options        []byte // of IP
	fragment       uint16 // more fragments: 0x2000; the offset below
	dontFragment   bool
	payload        string
	noChecksum     bool // of UDP
}

// TCP is a TCP segment; flags are letters of SAFRPU.
func TCP(src, dst, flags string) Packet {
	return transport(layers.IPProtocolTCP, src, dst).Flags(flags)
}

// UDP is a datagram.
func UDP(src, dst, payload string) Packet {
	return transport(layers.IPProtocolUDP, src, dst).Payload(payload)
}

// DirectorMAC is the hardware address that frames go to: one for other hosts
// is none of the director's business.
const DirectorMAC = "02:00:00:00:00:0b"

func transport(p layers.IPProtocol, src, dst string) Packet {
	const someone = "02:00:00:00:00:0a"
	return Packet{
		protocol: p, ttl: 64, srcMAC: someone, dstMAC: DirectorMAC,
		src: netip.MustParseAddrPort(src), dst: netip.MustParseAddrPort(dst),
	}
}

// From changes the source.
func (p Packet) From(src string) Packet { p.src = netip.MustParseAddrPort(src); return p }

// To changes the destination.
func (p Packet) To(dst string) Packet { p.dst = netip.MustParseAddrPort(dst); return p }

// Flags changes the TCP flags.
func (p Packet) Flags(flags string) Packet { p.flags = flags; return p }

// TTL changes the time to live.
func (p Packet) TTL(n uint8) Packet { p.ttl = n; return p }

// MACs changes the hardware addresses.
func (p Packet) MACs(src, dst string) Packet { p.srcMAC, p.dstMAC = src, dst; return p }

// Payload changes the data.
func (p Packet) Payload(data string) Packet { p.payload = data; return p }

// NoChecksum leaves the UDP checksum out (RFC 768: zero).
func (p Packet) NoChecksum() Packet { p.noChecksum = true; return p }

// Options adds n words of IP options: a record route option (RFC 791) that
// nobody fills in, of n * 4 bytes.
func (p Packet) Options(words int) Packet {
	p.options = make([]byte, 4*words-3) // without type, length and the padding behind
	p.options[0] = 4                    // pointer to the first free place
	return p
}

// Fragment makes the packet a fragment: the flags and the offset in units of
// eight bytes as in the header.
func (p Packet) Fragment(field uint16) Packet { p.fragment = field; return p }

// DontFragment sets the DF flag.
func (p Packet) DontFragment() Packet { p.dontFragment = true; return p }

// Frame is the packet as bytes, with correct lengths and checksums. A short
// one is not padded.
func (p Packet) Frame() []byte {
	eth := &layers.Ethernet{SrcMAC: mac(p.srcMAC), DstMAC: mac(p.dstMAC), EthernetType: layers.EthernetTypeIPv4}
	if p.src.Addr().Is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip := &layers.IPv6{
			Version: 6, HopLimit: p.ttl, NextHeader: p.protocol,
			SrcIP: p.src.Addr().AsSlice(), DstIP: p.dst.Addr().AsSlice(),
		}
		return serialize(eth, ip, p.transport(ip), gopacket.Payload(p.payload))
	}
	ip := &layers.IPv4{
		Version: 4, Id: 0x1234, TTL: p.ttl, Protocol: p.protocol,
		SrcIP: p.src.Addr().AsSlice(), DstIP: p.dst.Addr().AsSlice(),
		Flags: layers.IPv4Flag(p.fragment >> 13), FragOffset: p.fragment & 0x1fff,
	}
	if p.dontFragment {
		ip.Flags |= layers.IPv4DontFragment
	}
	if p.options != nil {
		ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: uint8(len(p.options) + 2), OptionData: p.options}}
	}
	frame := serialize(eth, ip, p.transport(ip), gopacket.Payload(p.payload))
	return frame[:etherHeader+int(ip.Length)] // gopacket pads to 60 bytes
}

func (p Packet) transport(ip gopacket.NetworkLayer) gopacket.SerializableLayer {
	if p.protocol == layers.IPProtocolUDP {
		udp := &udpLayer{layers.UDP{SrcPort: layers.UDPPort(p.src.Port()), DstPort: layers.UDPPort(p.dst.Port())}, p.noChecksum}
		_ = udp.SetNetworkLayerForChecksum(ip) // fails for other layers than IP
		return udp
	}
	has := func(flag string) bool { return strings.Contains(p.flags, flag) }
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(p.src.Port()), DstPort: layers.TCPPort(p.dst.Port()),
		Seq: 0x01020304, Ack: 0x05060708, Window: 1024,
		SYN: has("S"), ACK: has("A"), FIN: has("F"), RST: has("R"), PSH: has("P"), URG: has("U"),
	}
	if tcp.SYN {
		tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 0xb4}}}
	}
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return tcp
}

// udpLayer can leave the checksum out.
type udpLayer struct {
	layers.UDP
	noChecksum bool
}

func (u *udpLayer) SerializeTo(b gopacket.SerializeBuffer, o gopacket.SerializeOptions) error {
	o.ComputeChecksums = !u.noChecksum
	return u.UDP.SerializeTo(b, o)
}

func serialize(all ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, all...); err != nil {
		panic(err) // the test describes a packet that cannot be
	}
	return b.Bytes()
}

func mac(s string) net.HardwareAddr {
	hw, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return hw
}
