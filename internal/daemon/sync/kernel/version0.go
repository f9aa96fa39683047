// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"net/netip"
)

func (m *Message) read0(b []byte, records int) error {
	for i := range records {
		if len(b) < record0 {
			return place(i, ErrRecord)
		}
		half := func(at int) uint16 { return binary.BigEndian.Uint16(b[at:]) }
		end := func(address, port int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[address:])), half(port))
		}
		r := Record{
			Protocol: b[1], Flags: uint32(half(20)) &^ FlagHashed, State: half(22),
			Client: end(8, 2), Virtual: end(12, 4), Server: end(16, 6),
		}
		size := record0
		if r.Flags&FlagSequences != 0 {
			size += sequencesSize
			if len(b) < size {
				return place(i, ErrRecord)
			}
			r.Sequences = readSequences(b[record0:], binary.NativeEndian)
		}
		m.Records = append(m.Records, r)
		b = b[size:]
	}
	return nil
}

func (r *Record) append0(b []byte) []byte {
	b = append(b, 0, r.Protocol)
	for _, end := range []netip.AddrPort{r.Client, r.Virtual, r.Server} {
		b = binary.BigEndian.AppendUint16(b, end.Port())
	}
	for _, end := range []netip.AddrPort{r.Client, r.Virtual, r.Server} {
		b = appendAddress(b, end.Addr())
	}
	b = binary.BigEndian.AppendUint16(b, uint16(r.Flags&^FlagHashed))
	b = binary.BigEndian.AppendUint16(b, r.State)
	if r.Flags&FlagSequences != 0 {
		s := r.Sequences
		if s == nil {
			s = &Sequences{}
		}
		b = s.append(b, binary.NativeEndian)
	}
	return b
}
