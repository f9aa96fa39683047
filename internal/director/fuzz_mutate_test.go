// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"slices"

	"imbang/internal/testenv"
)

// longestFrame is what fits into the page that BPF_PROG_TEST_RUN takes, with
// what else it requires.
const longestFrame = 3300

// runnable is a frame that BPF_PROG_TEST_RUN takes: it expects a whole IP header
// in one that says that it has one.
func runnable(frame []byte) []byte {
	least := 15
	switch binary.BigEndian.Uint16(frame[12:]) {
	case 0x0800:
		least = 14 + 20
	case 0x86dd:
		least = 14 + 40
	}
	if len(frame) < least {
		frame = append(bytes.Clone(frame), make([]byte, least-len(frame))...)
	}
	return frame[:min(len(frame), longestFrame)]
}

// mutated is a frame that may have been changed, with right checksums or not.
func (s *script) mutated(of []byte) []byte {
	if s.once(2) {
		return of
	}
	frame := bytes.Clone(of)
	for range 1 + s.n(3) {
		frame = s.mutation(frame)
	}
	if s.once(2) {
		frame = testenv.Summed(frame)
	}
	return frame
}

func (s *script) mutation(frame []byte) []byte {
	switch s.n(12) {
	case 0, 1, 2, 3:
		return s.field(frame)
	case 4:
		frame[s.n(len(frame))] ^= 1 << s.n(8)
	case 5: // cut; BPF_PROG_TEST_RUN expects more than Ethernet's header
		return frame[:min(len(frame), 15+s.n(len(frame)))]
	case 6:
		return append(frame, s.bytes(1+s.n(64))...)
	case 7:
		return testenv.Pending(frame)
	case 8, 9:
		s.length(frame)
	case 10: // some bytes more, or less
		at := min(14+s.n(80), len(frame))
		if s.once(2) {
			return slices.Insert(frame, at, s.bytes(among(s.source, 1, 2, 4, 8, 40))...)
		}
		end := min(at+among(s.source, 1, 2, 4, 8, 40), len(frame))
		if len(frame)-(end-at) > 14 {
			return slices.Delete(frame, at, end)
		}
	case 11: // a header once more
		at := 14 + 4*s.n(20)
		end := min(at+among(s.source, 4, 8, 20, 40), len(frame))
		if at < end {
			return slices.Insert(frame, at, bytes.Clone(frame[at:end])...)
		}
	}
	return frame
}

// Offsets of what matters in a frame, and behind that in its transport header.
var (
	fields4         = []int{12, 13, 14, 14, 15, 16, 17, 18, 20, 20, 21, 22, 22, 23, 23, 24, 25, 26, 29, 30, 33, 34, 35}
	fields6         = []int{12, 13, 14, 15, 18, 19, 20, 20, 21, 21, 22, 30, 37, 38, 53, 54, 55, 56, 57}
	fieldsTransport = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 13, 13, 14, 15, 16, 17, 20, 28, 29, 30, 31, 37, 44}
)

// field changes a field.
func (s *script) field(frame []byte) []byte {
	at := among(s.source, 0, 6, 12)
	if len(frame) > 14+20 {
		fields := fields4
		if frame[12] == 0x86 {
			fields = fields6
		}
		at = among(s.source, fields...)
		if s.once(2) {
			transport, _ := transportOf(frame)
			at = transport + among(s.source, fieldsTransport...)
		}
	}
	if at < len(frame) {
		frame[at] = among(s.source, 0, 1, 0xff, 0x80, frame[at]+1, frame[at]-1, 6, 17, 58, 44, 0x45, 0x60, s.byte())
	}
	return frame
}

// length changes what the packet says of its length.
func (s *script) length(frame []byte) {
	at, behind := 16, len(frame)-14
	if frame[12] == 0x86 {
		at, behind = 18, len(frame)-14-40
	}
	if s.once(3) && len(frame) > 14 {
		transport, protocol := transportOf(append(bytes.Clone(frame), make([]byte, 20)...))
		if protocol == 17 {
			at, behind = transport+4, len(frame)-transport
		}
	}
	if at+2 <= len(frame) {
		say := among(s.source, behind, behind-1, behind+1, behind-s.n(64), behind+s.n(64), 0, 0xffff, 20+s.n(40))
		binary.BigEndian.PutUint16(frame[at:], uint16(say))
	}
}
