// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"fmt"
)

// check is a checksum in a frame.
type check struct {
	name string // such as "IP", "quoted UDP"
	at   int    // its offset
	size int
	// off tells how far the checksum is from the right one: 0 if it is that.
	// What translates a packet may change both, but never their distance.
	off uint32
	// cut says that not all is there that the checksum is about, so that off
	// means only that.
	cut bool
}

// CheckSums computes every checksum of a frame anew, and compares every length:
// those of the packet, and as far as they are there, those of a packet that it
// quotes.
func CheckSums(frame []byte) error {
	v, err := dissect(frame)
	if err != nil {
		return err
	}
	if err := v.lengths(); err != nil {
		return err
	}
	if q, ok := v.quoted(); ok {
		if err := q.lengths(); err != nil {
			return fmt.Errorf("quoted packet: %w", err)
		}
	}
	for _, c := range v.checks() {
		if c.off != 0 && !c.cut {
			return fmt.Errorf("wrong checksum: %s, by %#x", c.name, c.off)
		}
	}
	return nil
}

// CheckOwnSums computes the checksums in a frame's own headers anew, whatever it
// quotes.
func CheckOwnSums(frame []byte) error {
	v, err := dissect(frame)
	if err != nil {
		return err
	}
	for _, c := range v.own("") {
		if c.off != 0 && !c.cut {
			return fmt.Errorf("wrong checksum: %s, by %#x", c.name, c.off)
		}
	}
	return nil
}

// checks are all checksums of a frame, and of what it quotes.
func (v *view) checks() []check {
	all := v.own("")
	if q, ok := v.quoted(); ok {
		all = append(all, q.own("quoted ")...)
	}
	return all
}

// own are the checksums of a packet without what it quotes.
func (v *view) own(prefix string) (all []check) {
	if !v.six {
		header := v.frame[v.ip:min(v.transport, len(v.frame))]
		all = append(all, check{
			name: prefix + "IP", at: v.ip + 10, size: 2,
			off: distance(Sum(header)), cut: v.transport > len(v.frame),
		})
	}
	if c, ok := v.transportCheck(); ok {
		c.name = prefix + c.name
		all = append(all, c)
	}
	return all
}

// checkAt are the offsets of checksums in transport headers.
var checkAt = map[uint8]struct {
	name string
	at   int
}{
	protoTCP: {"TCP", 16}, protoUDP: {"UDP", 6}, protoSCTP: {"SCTP", sctpCheckAt},
	protoICMP: {"ICMP", 2}, protoICMPv6: {"ICMPv6", 2},
}

// transportCheck is the checksum in the transport header; ok if there is one.
func (v *view) transportCheck() (c check, ok bool) {
	where, ok := checkAt[v.protocol]
	segment, behind := v.segment(), v.end-v.transport
	c = check{name: where.name, at: v.transport + where.at, size: 2, cut: v.cut() || v.fragment}
	if v.protocol == protoSCTP {
		c.size = 4
	}
	if !ok || v.later || len(segment) < where.at+c.size {
		return c, false
	}
	switch v.protocol {
	case protoSCTP:
		said := binary.LittleEndian.Uint32(segment[sctpCheckAt:])
		if v.fragment || said == 0 { // how much more there is nobody knows; it is still to be filled in
			return c, false
		}
		c.off = sctpSum(segment, behind) ^ said
		return c, true
	case protoUDP:
		if segment[6] == 0 && segment[7] == 0 {
			return c, false // none was computed
		}
	case protoICMP:
		if !v.six {
			c.off = distance(Sum(segment))
			return c, true
		}
	}
	c.off = distance(Sum(pseudo(v.addresses(), v.protocol, behind), segment))
	return c, true
}

// distance is a sum as a number: there are two zeros.
func distance(sum uint16) uint32 { return uint32(sum) % 0xffff }

// lengths compares the lengths in the headers with each other.
func (v *view) lengths() error {
	segment, behind := v.segment(), v.end-v.transport
	if v.later {
		return nil
	}
	least := map[uint8]int{protoTCP: 20, protoUDP: 8, protoSCTP: 12, protoICMP: 8, protoICMPv6: 8}[v.protocol]
	if behind < least {
		return fmt.Errorf("%d bytes for protocol %d", behind, v.protocol)
	}
	switch {
	case v.protocol == protoTCP && len(segment) > 12:
		if size := int(segment[12]>>4) * 4; size < 20 || size > behind {
			return fmt.Errorf("a TCP header of %d in %d bytes", size, behind)
		}
	case v.protocol == protoUDP && len(segment) > 5:
		if size := int(binary.BigEndian.Uint16(segment[4:])); size != behind && !v.fragment {
			return fmt.Errorf("a UDP length of %d for %d bytes", size, behind)
		}
	case v.isError() && len(segment) > 8:
		if _, ok := v.quoted(); !ok && segment[8]>>4 != v.frame[v.ip]>>4 {
			return fmt.Errorf("an error about %#x, which is no packet", segment[8])
		}
	}
	return nil
}
