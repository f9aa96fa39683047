// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// view is an IP packet where it lies in a frame: the frame's own, or one that
// an ICMP error quotes.
type view struct {
	frame     []byte
	six       bool
	ip        int // offset of the IP header
	transport int // offset of what is behind the IP headers
	end       int // offset of the packet's end, by its length: a quote may be cut
	protocol  uint8
	fragment  bool // not a whole packet
	later     bool // a fragment without the transport header
}

// dissect finds the parts of a frame's packet.
func dissect(frame []byte) (view, error) {
	if len(frame) < etherHeader {
		return view{}, errors.New("no Ethernet header")
	}
	six := binary.BigEndian.Uint16(frame[12:]) == etherIPv6
	if !six && binary.BigEndian.Uint16(frame[12:]) != etherIPv4 {
		return view{}, errors.New("not an IP packet")
	}
	v, err := dissectAt(frame, etherHeader, six)
	if err == nil && v.end > len(frame) {
		return v, fmt.Errorf("a packet of %d bytes in a frame of %d", v.end-v.ip, len(frame))
	}
	return v, err
}

func dissectAt(frame []byte, at int, six bool) (view, error) {
	v := view{frame: frame, six: six, ip: at}
	if six {
		return v, v.dissect6()
	}
	return v, v.dissect4()
}

func (v *view) dissect4() error {
	ip := v.frame[v.ip:]
	if len(ip) < 20 || ip[0]>>4 != 4 || ip[0]&15 < 5 {
		return errors.New("no IPv4 header")
	}
	v.transport = v.ip + int(ip[0]&15)*4
	v.end = v.ip + int(binary.BigEndian.Uint16(ip[2:]))
	v.protocol = ip[9]
	field := binary.BigEndian.Uint16(ip[6:])
	v.later = field&0x1fff != 0
	v.fragment = v.later || field&moreFragments != 0
	return v.ordered()
}

func (v *view) dissect6() error {
	ip := v.frame[v.ip:]
	if len(ip) < 40 || ip[0]>>4 != 6 {
		return errors.New("no IPv6 header")
	}
	v.transport = v.ip + 40
	v.end = v.transport + int(binary.BigEndian.Uint16(ip[4:]))
	v.protocol = ip[6]
	for !v.later && slices.Contains([]uint8{HopByHop, Routing, Destination, protoAH, protoFragment}, v.protocol) {
		if err := v.skipExtension(); err != nil {
			return err
		}
	}
	return v.ordered()
}

func (v *view) skipExtension() error {
	h := v.frame[min(v.transport, len(v.frame)):]
	if len(h) < 8 {
		return fmt.Errorf("no extension header %d", v.protocol)
	}
	size := 8 + 8*int(h[1])
	switch v.protocol {
	case protoAH:
		size = 8 + 4*int(h[1])
	case protoFragment:
		size = 8
		offset := binary.BigEndian.Uint16(h[2:])
		v.later = offset&^7 != 0
		v.fragment = v.fragment || v.later || offset&1 != 0
	}
	v.protocol = h[0]
	v.transport += size
	return nil
}

// ordered reports lengths by which the packet ends before its headers do.
func (v *view) ordered() error {
	if v.transport > v.end {
		return fmt.Errorf("headers of %d bytes in a packet of %d", v.transport-v.ip, v.end-v.ip)
	}
	return nil
}

// addresses are source and destination, one behind the other.
func (v *view) addresses() []byte {
	if v.six {
		return v.frame[v.ip+8 : v.ip+40]
	}
	return v.frame[v.ip+12 : v.ip+20]
}

// segment is what there is behind the IP headers.
func (v *view) segment() []byte {
	at, end := min(v.transport, len(v.frame)), min(v.end, len(v.frame))
	return v.frame[at:max(at, end)]
}

// cut reports whether the frame ends before the packet does.
func (v *view) cut() bool { return v.end > len(v.frame) }

func (v *view) isICMP() bool {
	return !v.later && (v.protocol == protoICMP && !v.six || v.protocol == protoICMPv6 && v.six)
}

// hasPorts reports whether source and destination port can be read.
func (v *view) hasPorts() bool {
	return !v.later && len(v.segment()) >= 4 &&
		(v.protocol == protoTCP || v.protocol == protoUDP || v.protocol == protoSCTP)
}

// ends are source and destination; the ports are 0 where there are none.
func (v *view) ends() (src, dst netip.AddrPort) {
	addrs := v.addresses()
	a, _ := netip.AddrFromSlice(addrs[:len(addrs)/2])
	b, _ := netip.AddrFromSlice(addrs[len(addrs)/2:])
	var sport, dport uint16
	if v.hasPorts() {
		sport, dport = binary.BigEndian.Uint16(v.segment()), binary.BigEndian.Uint16(v.segment()[2:])
	}
	return netip.AddrPortFrom(a, sport), netip.AddrPortFrom(b, dport)
}

// quoted is the packet that an ICMP error is about; ok if there is one.
func (v *view) quoted() (q view, ok bool) {
	if !v.isError() {
		return q, false
	}
	q, err := dissectAt(v.frame[:v.end], v.transport+8, v.six)
	return q, err == nil
}

// isError reports whether this is a message of a type that quotes what it is
// about.
func (v *view) isError() bool {
	if !v.isICMP() || v.fragment || len(v.segment()) < 8 {
		return false
	}
	kind := v.segment()[0]
	if v.six {
		return kind < 128
	}
	return slices.Contains([]uint8{3, 4, 5, 11, 12}, kind)
}

// Ends are the addresses and ports of a frame's TCP, UDP or SCTP packet.
func Ends(frame []byte) (src, dst netip.AddrPort, err error) {
	v, err := dissect(frame)
	if err != nil {
		return src, dst, err
	}
	if !v.hasPorts() {
		return src, dst, fmt.Errorf("protocol %d has no ports", v.protocol)
	}
	src, dst = v.ends()
	return src, dst, nil
}
