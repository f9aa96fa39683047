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

// split takes the IPv4 packet of a frame apart, without what pads the frame.
func split(frame []byte) (header, body []byte, err error) {
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

// CheckSums computes every checksum of a frame anew: IP, and TCP, UDP or ICMP.
func CheckSums(frame []byte) error {
	header, body, err := split(frame)
	if err != nil {
		return err
	}
	if Sum(header) != 0 {
		return errors.New("wrong IP header checksum")
	}
	if header[9] == protoICMP {
		if Sum(body) != 0 {
			return errors.New("wrong ICMP checksum")
		}
		return nil
	}
	if header[9] == protoUDP && len(body) > 7 && binary.BigEndian.Uint16(body[6:]) == 0 {
		return nil // none was computed
	}
	pseudo := []byte{0, header[9], byte(len(body) >> 8), byte(len(body))}
	if Sum(header[12:20], pseudo, body) != 0 {
		return fmt.Errorf("wrong checksum of protocol %d", header[9])
	}
	return nil
}

// Ends are the addresses and ports of a frame's TCP or UDP packet.
func Ends(frame []byte) (src, dst netip.AddrPort, err error) {
	header, body, err := split(frame)
	if err != nil {
		return src, dst, err
	}
	if header[9] != protoTCP && header[9] != protoUDP || len(body) < 8 {
		return src, dst, fmt.Errorf("protocol %d has no ports", header[9])
	}
	end := func(addr, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(addr)), binary.BigEndian.Uint16(port))
	}
	return end(header[12:16], body), end(header[16:20], body[2:]), nil
}
