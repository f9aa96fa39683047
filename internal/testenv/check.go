// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

const (
	etherHeader = 14
	ip6Header   = 40
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
)

// Sum is the Internet checksum of RFC 1071 over all parts, each of which but
// the last has an even length; 0 over data that hold their right checksum.
func Sum(parts ...[]byte) uint16 {
	var sum uint32
	for _, b := range parts {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// split takes the IP packet of a frame apart, without what pads the frame.
func split(frame []byte) (header, body []byte, err error) {
	if len(frame) >= etherHeader+ip6Header && binary.BigEndian.Uint16(frame[12:]) == 0x86dd {
		return split6(frame[etherHeader:])
	}
	if len(frame) < etherHeader+20 || binary.BigEndian.Uint16(frame[12:]) != 0x0800 {
		return nil, nil, errors.New("not an IPv4 packet")
	}
	ip := frame[etherHeader:]
	size, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ip[0]>>4 != 4 || size < 20 || total < size || total > len(ip) {
		return nil, nil, fmt.Errorf("header of %d, packet of %d in %d bytes", size, total, len(ip))
	}
	return ip[:size], ip[size:total], nil
}

// split6 takes an IPv6 packet without extension headers apart.
func split6(ip []byte) (header, body []byte, err error) {
	length := int(binary.BigEndian.Uint16(ip[4:]))
	if ip[0]>>4 != 6 || ip6Header+length > len(ip) {
		return nil, nil, fmt.Errorf("IPv6 payload of %d in %d bytes", length, len(ip))
	}
	return ip[:ip6Header], ip[ip6Header : ip6Header+length], nil
}

// protocolOf is what follows an IP header.
func protocolOf(header []byte) byte {
	if header[0]>>4 == 6 {
		return header[6]
	}
	return header[9]
}

// addressesOf are the two addresses of an IP header.
func addressesOf(header []byte) []byte {
	if header[0]>>4 == 6 {
		return header[8:40]
	}
	return header[12:20]
}

// CheckSums computes every checksum of a frame anew: IP, and TCP, UDP or ICMP.
func CheckSums(frame []byte) error {
	header, body, err := split(frame)
	if err != nil {
		return err
	}
	protocol, v6 := protocolOf(header), header[0]>>4 == 6
	if !v6 && Sum(header) != 0 {
		return errors.New("wrong IP header checksum")
	}
	if !v6 && protocol == protoICMP {
		if Sum(body) != 0 {
			return errors.New("wrong ICMP checksum")
		}
		return nil
	}
	if !v6 && protocol == protoUDP && len(body) > 7 && binary.BigEndian.Uint16(body[6:]) == 0 {
		return nil // none was computed
	}
	pseudo := []byte{0, protocol, byte(len(body) >> 8), byte(len(body))}
	if Sum(addressesOf(header), pseudo, body) != 0 {
		return fmt.Errorf("wrong checksum of protocol %d", protocol)
	}
	return nil
}

// Ends are the addresses and ports of a frame's TCP or UDP packet.
func Ends(frame []byte) (src, dst netip.AddrPort, err error) {
	header, body, err := split(frame)
	if err != nil {
		return src, dst, err
	}
	if p := protocolOf(header); p != protoTCP && p != protoUDP || len(body) < 8 {
		return src, dst, fmt.Errorf("protocol %d has no ports", p)
	}
	end := func(addr, port []byte) netip.AddrPort {
		a, _ := netip.AddrFromSlice(addr) // of a length that an address has
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
	}
	addresses := addressesOf(header)
	half := len(addresses) / 2
	return end(addresses[:half], body), end(addresses[half:], body[2:]), nil
}
