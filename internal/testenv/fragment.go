// SPDX-License-Identifier: Apache-2.0

package testenv

import "encoding/binary"

const moreFragments = 0x2000

// Fragment makes the packet a fragment: the flags and the offset in units of
// eight bytes as in IPv4's header. In IPv6, 0 stands for an atomic fragment
// (RFC 6946): one that is whole.
func (p Packet) Fragment(field uint16) Packet {
	if !p.six() {
		p.fragment = field
		return p
	}
	offset := field<<3 | field>>13&1
	content := binary.BigEndian.AppendUint16(nil, offset)
	return p.extended(extension{protoFragment, binary.BigEndian.AppendUint32(content, p.id)})
}

// Fragments are the frames of the packet when each carries `size` bytes, a
// multiple of eight, of what is behind the IP header.
func (p Packet) Fragments(size int) (frames [][]byte) {
	segment := p.segment()
	for at := 0; at < len(segment); at += size {
		end, field := at+size, uint16(at/8)
		if end < len(segment) {
			field |= moreFragments
		} else {
			end = len(segment)
		}
		frames = append(frames, p.Fragment(field).framed(segment[at:end]))
	}
	return frames
}
