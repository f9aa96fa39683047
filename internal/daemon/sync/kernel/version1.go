// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Types of options, and the bit of those that a receiver may ignore.
const (
	optionSequences  = 1
	optionEngineData = 2
	optionEngine     = 3
	optionParameter  = 0x40
)

const typeIPv6 = 0x1

func (m *Message) read1(b []byte, records int) error {
	for i := range records {
		if len(b) < record4 {
			return place(i, ErrRecord)
		}
		// The upper four bits are the record's own version.
		size := int(binary.BigEndian.Uint16(b[2:]))
		if size>>12 != 0 {
			return place(i, ErrVersion)
		}
		if size > len(b) {
			return place(i, ErrRecord)
		}
		r, known, err := readRecord1(b[:size])
		if err != nil {
			return place(i, err)
		}
		if known {
			m.Records = append(m.Records, r)
		} else {
			m.Skipped++
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

// readRecord1 reads one record with its options; it is not known if an option has to be
// understood and is not.
func readRecord1(b []byte) (r Record, known bool, err error) {
	if len(b) < record4 {
		return r, false, ErrRecord
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	half := func(at int) uint16 { return binary.BigEndian.Uint16(b[at:]) }
	size, width := record4, 4
	if b[0]&typeIPv6 != 0 {
		size, width = record6, 16
	} else if b[0] != 0 {
		return r, false, ErrType
	}
	if len(b) < size {
		return r, false, ErrRecord
	}
	end := func(n int, port uint16) netip.AddrPort {
		a, _ := netip.AddrFromSlice(b[24+n*width : 24+(n+1)*width])
		return netip.AddrPortFrom(a, port)
	}
	r = Record{
		Protocol: b[1], Flags: word(4), State: half(8), Mark: word(16), Timeout: word(20),
		Client: end(0, half(10)), Virtual: end(1, half(12)), Server: end(2, half(14)),
	}
	known, err = r.readOptions(b[size:])
	return r, known, err
}

// readOptions reads type, length and value, over and over. Each may come once.
func (r *Record) readOptions(b []byte) (known bool, err error) {
	for len(b) > 0 {
		if len(b) < 2 || b[1] == 0 || len(b) < 2+int(b[1]) {
			return false, ErrOption
		}
		kind, value := b[0], b[2:2+int(b[1])]
		b = b[2+len(value):]
		switch kind &^ optionParameter {
		case optionSequences:
			if len(value) != sequencesSize || r.Sequences != nil {
				return false, ErrOption
			}
			r.Sequences = readSequences(value, binary.BigEndian)
		case optionEngineData:
			if r.EngineData != nil {
				return false, ErrOption
			}
			r.EngineData = slices.Clone(value)
		case optionEngine:
			if len(value) > MaxEngine || r.Engine != "" {
				return false, ErrOption
			}
			r.Engine = string(value)
		default:
			if kind&optionParameter == 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// append1 appends a record, without what pads it to a whole number of words.
func (r *Record) append1(b []byte) []byte {
	start := len(b)
	kind := byte(0)
	if r.Client.Addr().Is6() {
		kind = typeIPv6
	}
	b = append(b, kind, r.Protocol, 0, 0)
	b = binary.BigEndian.AppendUint32(b, r.Flags&^FlagHashed)
	for _, v := range []uint16{r.State, r.Client.Port(), r.Virtual.Port(), r.Server.Port()} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, r.Mark)
	b = binary.BigEndian.AppendUint32(b, r.Timeout)
	for _, end := range []netip.AddrPort{r.Client, r.Virtual, r.Server} {
		b = appendAddress(b, end.Addr())
	}
	if r.Sequences != nil {
		b = r.Sequences.append(append(b, optionSequences, sequencesSize), binary.BigEndian)
	}
	if len(r.EngineData) > 0 {
		b = append(append(b, optionEngineData, byte(len(r.EngineData))), r.EngineData...)
	}
	if r.Engine != "" {
		b = append(append(b, optionEngine, byte(len(r.Engine))), r.Engine...)
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}
