// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Cut is what a router makes of a frame whose IPv4 packet is longer than the
// next link takes (RFC 791, 3.2): each fragment as long as it can be, those
// behind the first without the options that are not to be copied.
func Cut(frame []byte, mtu int) (frames [][]byte) {
	ether, ip := frame[:etherHeader], frame[etherHeader:]
	header := bytes.Clone(ip[:ip[0]&15*4])
	data := ip[len(header):binary.BigEndian.Uint16(ip[2:])]
	field := binary.BigEndian.Uint16(header[6:])
	for at := 0; at < len(data); {
		n, field := len(data)-at, field+uint16(at/8)
		if n > mtu-len(header) {
			n, field = (mtu-len(header))/8*8, field|moreFragments
		}
		if at > 0 {
			blankOptions(header[20:])
		}
		h := slices.Clone(header)
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)+n))
		binary.BigEndian.PutUint16(h[6:], field)
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], Sum(h))
		frames = append(frames, slices.Concat(ether, h, data[at:at+n]))
		at += n
	}
	return frames
}

// blankOptions overwrites those that are not copied on fragmentation.
func blankOptions(options []byte) {
	const end, noop, copied = 0, 1, 0x80
	for len(options) > 0 && options[0] != end {
		n := 1
		if options[0] != noop {
			n = int(options[1])
			if options[0]&copied == 0 {
				copy(options, bytes.Repeat([]byte{noop}, n))
			}
		}
		options = options[n:]
	}
}

// Joined puts the fragments of an IPv4 packet, in order, together.
func Joined(frames [][]byte) ([]byte, error) {
	if len(frames) == 0 {
		return nil, errors.New("no fragments")
	}
	whole := bytes.Clone(frames[0])
	size := int(whole[etherHeader]&15) * 4
	for i, f := range frames {
		ip := f[etherHeader:]
		field := uint16((len(whole) - etherHeader - size) / 8)
		if i == 0 {
			field = 0
		}
		if i < len(frames)-1 {
			field |= moreFragments
		}
		if got := binary.BigEndian.Uint16(ip[6:]); got != field {
			return nil, fmt.Errorf("fragment %d has flags and offset %#x, want %#x", i, got, field)
		}
		if n := int(binary.BigEndian.Uint16(ip[2:])); n != len(ip) || Sum(ip[:size]) != 0 || !bytes.Equal(ip[4:6], frames[0][etherHeader+4:][:2]) {
			return nil, fmt.Errorf("fragment %d of %d bytes has the header %x", i, len(ip), ip[:size])
		}
		if i > 0 {
			whole = append(whole, ip[size:]...)
		}
	}
	h := whole[etherHeader:][:size]
	binary.BigEndian.PutUint16(h[2:], uint16(len(whole)-etherHeader))
	h[6], h[7], h[10], h[11] = 0, 0, 0, 0
	binary.BigEndian.PutUint16(h[10:], Sum(h))
	return whole, nil
}
