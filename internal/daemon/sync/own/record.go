// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"imbang/internal/model"
)

// Operations, in the low four bits of a record's first byte.
const (
	opPut       = 1 // enters or updates an entry
	opDelete    = 2 // deletes it
	opDefine    = 3 // gives an index to a service and a server
	opForget    = 4 // the index is no longer used
	opConfigEnd = 5 // the definitions are the sender's configuration
	opBulkEnd   = 6 // the bulk transfer is complete
	opBarrier   = 7 // nothing: its datagram is to be acknowledged
)

// Bits of an entry's first byte.
const (
	bitIPv6     = 1 << 4
	bitTemplate = 1 << 5
	bitWord     = 1 << 6 // a word follows: the control's netmask, or a template's timeout
	bitStrings  = 1 << 7 // the engine with its data, or the control's Call-ID
	opMask      = 0x0f
)

const (
	entrySize4, entrySize6 = 32, 56
	// longestExpiry is what ipvsadm accepts as a timeout.
	longestExpiry = 31 * 24 * time.Hour
	// maxPackets is how many packets of a client are told: more than drop_entry asks for.
	maxPackets = 15
)

// wireFlags are the flags that travel, by their bits.
const wireFlags = model.ConnInactive | model.ConnHairpin | model.ConnReplied | model.ConnListed | model.ConnAdopted | model.ConnInvalid

// wireReplica is a bit of an entry's flags: it is a replica of the sender, too. In a pair
// alone, and in a bulk transfer.
const wireReplica = model.ConnReplica

// Why an entry cannot be sent, or a record not be read.
var (
	ErrEntry  = errors.New("an entry that the protocol cannot describe")
	ErrRecord = errors.New("a malformed record")
)

func unsendable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrEntry, fmt.Sprintf(format, args...))
}

// entrySize is the size of an entry's record [bytes].
func entrySize(c *model.Connection) int {
	n := entrySize6
	if c.Client.Addr().Is4() {
		n = entrySize4
	}
	if c.Template || c.Control != nil {
		n += 4
	}
	if c.Flags&model.ConnHairpin != 0 {
		n += c.Client.Addr().BitLen()/8 + 2
	}
	if c.Engine != "" || c.EngineData != "" {
		n += 2 + len(c.Engine) + len(c.EngineData)
	}
	if c.Control != nil && c.Control.CallID != "" {
		n += 1 + len(c.Control.CallID)
	}
	return n
}

func checkEntry(c *model.Connection) error {
	client, virtual := c.Client.Addr(), c.Virtual.Addr()
	if !client.IsValid() || !virtual.IsValid() || client.Is4() != virtual.Is4() || client.Zone() != "" || virtual.Zone() != "" {
		return unsendable("client %s, virtual %s", c.Client, c.Virtual)
	}
	if c.Server.Addr() != c.RealServer.Addr() {
		return unsendable("its packets go to %s, its server is %s", c.Server, c.RealServer)
	}
	if c.Forward > 15 || c.Flags&^(wireFlags|wireReplica) != 0 {
		return unsendable("forward %d, flags %#x", c.Forward, c.Flags)
	}
	if hairpin := c.Hairpin.Addr(); (c.Flags&model.ConnHairpin != 0) != c.Hairpin.IsValid() ||
		c.Hairpin.IsValid() && (hairpin.Is4() != client.Is4() || hairpin.Zone() != "") {
		return unsendable("hairpin %s", c.Hairpin)
	}
	if c.Template && (c.Control != nil || c.Timeout < 0 || c.Timeout > longestExpiry) || !c.Template && c.Engine+c.EngineData != "" {
		return unsendable("a template's or a connection's fields in the other")
	}
	if len(c.Engine) > math.MaxUint8 || len(c.EngineData) > math.MaxUint8 || c.Control != nil && len(c.Control.CallID) > math.MaxUint8 {
		return unsendable("engine, its data or a Call-ID of more than 255 bytes")
	}
	return nil
}

// appendEntry appends the record of an entry whose service and server have an index. It
// expires in e from now on, not in what the entry says.
func appendEntry(b []byte, op uint8, c *model.Connection, index uint32, e time.Duration) ([]byte, error) {
	if err := checkEntry(c); err != nil {
		return b, err
	}
	state, ok := c.StateNumber()
	if !ok {
		return b, unsendable("protocol %d, state %q", c.Protocol, c.State)
	}
	first, control, word := op, uint8(0), uint32(0)
	if !c.Client.Addr().Is4() {
		first |= bitIPv6
	}
	if c.Template {
		first |= bitTemplate | bitWord
		word = uint32(c.Timeout / time.Second)
	}
	strings := c.Engine != "" || c.EngineData != ""
	if c.Control != nil {
		first |= bitWord
		control, word = uint8(c.Control.Kind), uint32(c.Control.Netmask)
		strings = c.Control.CallID != ""
	}
	if strings {
		first |= bitStrings
	}
	b = append(b, first, uint8(c.Protocol), state, uint8(c.Flags))
	b = binary.BigEndian.AppendUint32(b, index)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(e, 0)/time.Millisecond, math.MaxUint32)))
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(c.Idle, 0), longestExpiry)/time.Millisecond))
	b = binary.BigEndian.AppendUint16(b, c.Client.Port())
	b = binary.BigEndian.AppendUint16(b, c.Virtual.Port())
	b = binary.BigEndian.AppendUint16(b, c.Server.Port())
	b = append(b, uint8(c.Forward)<<4|uint8(min(c.InPackets, maxPackets)), control)
	b = appendAddr(b, c.Client.Addr())
	b = appendAddr(b, c.Virtual.Addr())
	if first&bitWord != 0 {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	if c.Flags&model.ConnHairpin != 0 {
		b = appendAddr(b, c.Hairpin.Addr())
		b = binary.BigEndian.AppendUint16(b, c.Hairpin.Port())
	}
	switch {
	case strings && c.Template:
		b = append(append(b, uint8(len(c.Engine))), c.Engine...)
		b = append(append(b, uint8(len(c.EngineData))), c.EngineData...)
	case strings:
		b = append(append(b, uint8(len(c.Control.CallID))), c.Control.CallID...)
	}
	return b, nil
}

// appendAddr appends an address of 4 or 16 bytes.
func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		x := a.As4()
		return append(b, x[:]...)
	}
	x := a.As16()
	return append(b, x[:]...)
}

// reader takes fields from the front; it fails once and for all at the end.
type reader struct {
	b    []byte
	fail bool
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.fail, r.b = true, nil
		return nil
	}
	t := r.b[:n]
	r.b = r.b[n:]
	return t
}

func (r *reader) byte() uint8 {
	if t := r.take(1); t != nil {
		return t[0]
	}
	return 0
}

func (r *reader) half() uint16 {
	if t := r.take(2); t != nil {
		return binary.BigEndian.Uint16(t)
	}
	return 0
}

func (r *reader) word() uint32 {
	if t := r.take(4); t != nil {
		return binary.BigEndian.Uint32(t)
	}
	return 0
}

func (r *reader) long() uint64 {
	if t := r.take(8); t != nil {
		return binary.BigEndian.Uint64(t)
	}
	return 0
}

func (r *reader) addr(six bool) netip.Addr {
	if six {
		if t := r.take(16); t != nil {
			return netip.AddrFrom16([16]byte(t))
		}
	} else if t := r.take(4); t != nil {
		return netip.AddrFrom4([4]byte(t))
	}
	return netip.Addr{}
}

func (r *reader) text() []byte { return r.take(int(r.byte())) }

// engineName returns a name without a copy if it is one that exists.
func engineName(b []byte) string {
	if string(b) == "sip" {
		return "sip"
	}
	return string(b)
}

// readEntry reads a record of opPut or opDelete, from its first byte on, except for what
// its index stands for.
func readEntry(r *reader, c *model.Connection, out *Output) (index uint32, err error) {
	first := r.byte()
	six, template := first&bitIPv6 != 0, first&bitTemplate != 0
	*c = model.Connection{Protocol: model.Protocol(r.byte()), Template: template}
	state := int(r.byte())
	c.Flags = model.ConnFlags(r.byte())
	index = r.word()
	c.Expires = time.Duration(r.word()) * time.Millisecond
	c.Idle = time.Duration(r.word()) * time.Millisecond
	client, virtual, server := r.half(), r.half(), r.half()
	packed, control := r.byte(), model.TemplateKind(r.byte())
	c.Forward, c.InPackets = model.Forward(packed>>4), uint16(packed&0x0f)
	c.Client = netip.AddrPortFrom(r.addr(six), client)
	c.Virtual = netip.AddrPortFrom(r.addr(six), virtual)
	c.Server = netip.AddrPortFrom(netip.Addr{}, server)
	states := model.States(c.Protocol, template)
	hasWord := first&bitWord != 0
	if r.fail || state >= len(states) || c.Flags&^(wireFlags|wireReplica) != 0 || template && control != 0 || hasWord != (template || control != 0) {
		return index, ErrRecord
	}
	c.State = states[state]
	word := uint32(0)
	if hasWord {
		word = r.word()
	}
	if c.Flags&model.ConnHairpin != 0 {
		a := r.addr(six)
		c.Hairpin = netip.AddrPortFrom(a, r.half())
	}
	switch {
	case template:
		c.Timeout = time.Duration(word) * time.Second
		if c.Timeout > longestExpiry {
			return index, ErrRecord
		}
		if first&bitStrings != 0 {
			c.Engine = engineName(r.text())
			c.EngineData = string(r.text())
		}
	case control != 0:
		c.Control = out.control(model.Control{Kind: control, Netmask: model.Netmask(word)})
		if first&bitStrings != 0 {
			c.Control.CallID = string(r.text())
		}
	case first&bitStrings != 0:
		return index, ErrRecord
	}
	if r.fail {
		return index, ErrRecord
	}
	return index, nil
}
