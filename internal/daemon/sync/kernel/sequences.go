// SPDX-License-Identifier: Apache-2.0

package kernel

import "encoding/binary"

// order is a byte order that reads and appends.
type order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

func readSequences(b []byte, o order) *Sequences {
	one := func(at int) Sequence { return Sequence{o.Uint32(b[at:]), o.Uint32(b[at+4:]), o.Uint32(b[at+8:])} }
	return &Sequences{In: one(0), Out: one(12)}
}

func (s *Sequences) append(b []byte, o order) []byte {
	for _, v := range []uint32{s.In.Initial, s.In.Delta, s.In.Previous, s.Out.Initial, s.Out.Delta, s.Out.Previous} {
		b = o.AppendUint32(b, v)
	}
	return b
}
