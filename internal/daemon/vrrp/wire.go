// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// Protocol is the number of the IP protocol.
const Protocol = 112

// HopLimit is the TTL or hop limit of each packet (RFC 9568, 5.1.1.3 and 5.1.2.3).
const HopLimit = 255

// Destinations of advertisements by multicast (RFC 9568, 5.1.1.2 and 5.1.2.2).
var (
	Group4 = netip.AddrFrom4([4]byte{224, 0, 0, 18})
	Group6 = netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 0x12})
)

// The interval has 12 bits, in centiseconds.
const (
	MinInterval = 10 * time.Millisecond
	MaxInterval = 4095 * centisecond
	centisecond = 10 * time.Millisecond
)

const (
	headerSize   = 8
	versionType  = 3<<4 | 1 // version 3, type 1: ADVERTISEMENT
	intervalMask = 0x0fff
	// MaxAddresses4 and MaxAddresses6 are how many addresses an advertisement has at most.
	// The count has 8 bits, and an IPv6 packet of 1280 bytes has room for 77.
	MaxAddresses4 = 255
	MaxAddresses6 = 77
)

// Priorities with a meaning (RFC 9568, 5.2.4).
const (
	PriorityResign = 0   // the master leaves
	PriorityOwner  = 255 // the address is its own
)

// Advertisement is the only message of the protocol (RFC 9568, 5.2).
type Advertisement struct {
	ID        uint8
	Priority  uint8
	Interval  time.Duration
	Addresses []netip.Addr // all of the packet's family
	// Plain is the checksum's method over IPv4: without the pseudo header. See doc.go.
	Plain bool
}

// Packet is what the IP header of an advertisement says.
type Packet struct {
	Source      netip.Addr
	Destination netip.Addr
	HopLimit    int // TTL of IPv4
}

// Append encodes an advertisement that is sent from source to destination.
func (a *Advertisement) Append(b []byte, source, destination netip.Addr) ([]byte, error) {
	if a.Interval < MinInterval || a.Interval > MaxInterval || a.Interval%centisecond != 0 {
		return b, fmt.Errorf("an interval of %v: want a multiple of 10 ms, %v to %v", a.Interval, MinInterval, MaxInterval)
	}
	most := MaxAddresses6
	if source.Is4() {
		most = MaxAddresses4
	}
	if n := len(a.Addresses); n == 0 || n > most {
		return b, fmt.Errorf("%d addresses: want 1 to %d", n, most)
	}
	if source.Is4() != destination.Is4() {
		return b, fmt.Errorf("from %v to %v: two families", source, destination)
	}
	start := len(b)
	b = append(b, versionType, a.ID, a.Priority, byte(len(a.Addresses)))
	b = binary.BigEndian.AppendUint16(b, uint16(a.Interval/centisecond))
	b = append(b, 0, 0)
	for _, address := range a.Addresses {
		if address.Is4() != source.Is4() || !usable(address) {
			return b[:start], fmt.Errorf("the address %v cannot be advertised from %v", address, source)
		}
		b = append(b, address.AsSlice()...)
	}
	message := b[start:]
	sum := checksum(0, message)
	if !a.Plain || !source.Is4() {
		sum = checksum(pseudoSum(source, destination, len(message)), message)
	}
	binary.BigEndian.PutUint16(message[6:], sum)
	return b, nil
}

// usable reports whether an address can be one of a virtual router.
func usable(a netip.Addr) bool { return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() }

// Parse decodes the payload of an IP packet into a, whose Addresses it uses again. Only for
// Accepted is a complete. A packet must be for the virtual router id (RFC 9568, 7.1). The hop
// limit is checked for multicast only: routers may be between peers by unicast, and
// keepalived does not check it there. The reserved bits are ignored (5.2.6).
func Parse(b []byte, p Packet, id uint8, unicast bool, a *Advertisement) Reason {
	if len(b) < headerSize {
		return ReasonTruncated
	}
	if b[0]>>4 != versionType>>4 {
		return ReasonVersion
	}
	if b[0]&0xf != versionType&0xf {
		return ReasonType
	}
	if b[1] != id {
		return ReasonRouter
	}
	is4 := p.Source.Is4()
	if !unicast && p.HopLimit != HopLimit {
		return ReasonHopLimit
	}
	if !destined(p.Destination, is4, unicast) {
		return ReasonDestination
	}
	size := 16
	if is4 {
		size = 4
	}
	count := int(b[3])
	if count == 0 {
		return ReasonCount
	}
	if want := headerSize + count*size; len(b) < want {
		return ReasonTruncated
	} else if len(b) > want {
		return ReasonLength
	}
	// A right message adds up to 0xffff with its checksum, of which the complement is 0.
	plain := false
	if checksum(pseudoSum(p.Source, p.Destination, len(b)), b) != 0 {
		if !is4 || checksum(0, b) != 0 {
			return ReasonChecksum
		}
		plain = true
	}
	interval := binary.BigEndian.Uint16(b[4:]) & intervalMask
	if interval == 0 {
		return ReasonInterval
	}
	addresses := a.Addresses[:0]
	for rest := b[headerSize:]; len(rest) > 0; rest = rest[size:] {
		address, _ := netip.AddrFromSlice(rest[:size])
		if !usable(address) {
			return ReasonAddress
		}
		addresses = append(addresses, address)
	}
	*a = Advertisement{ID: id, Priority: b[2], Interval: time.Duration(interval) * centisecond, Addresses: addresses, Plain: plain}
	return Accepted
}

// destined reports whether packets for this destination are accepted.
func destined(d netip.Addr, is4, unicast bool) bool {
	switch {
	case d.Is4() != is4:
		return false
	case unicast:
		return !d.IsMulticast()
	case is4:
		return d == Group4
	}
	return d == Group6
}
