// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Versions of the protocol (sysctl sync_version).
const (
	Version0 = 0 // IPv4 only, without options
	Version1 = 1
)

// Lengths that the kernel bounds [bytes].
const (
	MaxEngineData = 255 // IP_VS_PEDATA_MAXLEN
	MaxEngine     = 16  // IP_VS_PENAME_MAXLEN
)

const (
	header0, header1 = 4, 8
	record0          = 24
	record4, record6 = 36, 72
	sequencesSize    = 24
)

// MaxRecords is how many records a message has at most: what its header can count.
const MaxRecords = 255

// Flags of a record, those of the connection (include/uapi/linux/ip_vs.h).
const (
	FlagForward   uint32 = 0x7 // IP_VS_CONN_F_FWD_MASK: the forwarding method
	FlagSync      uint32 = 0x20
	FlagHashed    uint32 = 0x40
	FlagNoOutput  uint32 = 0x80
	FlagInactive  uint32 = 0x100
	FlagOutSeq    uint32 = 0x200
	FlagInSeq     uint32 = 0x400
	FlagSequences        = FlagOutSeq | FlagInSeq
	FlagNoCPort   uint32 = 0x800
	FlagTemplate  uint32 = 0x1000
	FlagOnePacket uint32 = 0x2000
)

// Sequence is how the sequence numbers of one direction were moved (struct ip_vs_seq).
type Sequence struct{ Initial, Delta, Previous uint32 }

// Sequences are those of a connection whose payload an application helper changed.
type Sequences struct{ In, Out Sequence }

// Record tells of one connection or template.
type Record struct {
	Protocol uint8 // 0 for the template of a firewall mark
	Flags    uint32
	State    uint16 // by protocol; of a template 1 if it is assured
	// Client and Virtual are the connection's ends before translation; of a template the
	// client's network and port 0, of a mark's also the mark as address. Server is where its
	// packets go. All three are of one family.
	Client, Virtual, Server netip.AddrPort
	Mark                    uint32
	Timeout                 uint32 // [s], of the state; version 0 does not tell it
	Sequences               *Sequences
	// Engine names the persistence engine of a template, and EngineData is what it
	// recognizes clients by. Version 0 has neither.
	Engine     string
	EngineData []byte
}

// Message is one datagram.
type Message struct {
	Version uint8
	SyncID  uint8
	Records []Record
	// Skipped counts records that were left out for an option that has to be
	// understood and is not.
	Skipped int
}

// Why a message, or what follows the records that were read, is not used.
var (
	ErrShort   = errors.New("shorter than a header")
	ErrSize    = errors.New("not as long as it says")
	ErrRecord  = errors.New("a record does not fit")
	ErrVersion = errors.New("a record of unknown version")
	ErrType    = errors.New("a record of unknown type")
	ErrOption  = errors.New("a malformed option")
)

// Read reads a datagram, as ip_vs_process_message does: what is not exactly of version 1 is
// taken for version 0. With an error the message holds the records before the fault, which
// the kernel uses.
func Read(b []byte) (Message, error) {
	var m Message
	err := m.Read(b)
	return m, err
}

// Read reads a datagram likewise, into the memory of the records that the message had.
func (m *Message) Read(b []byte) error {
	*m = Message{Records: m.Records[:0]}
	if len(b) < header0 {
		return ErrShort
	}
	if Size(b) != len(b) {
		return ErrSize
	}
	m.SyncID = b[1]
	if len(b) >= header1 && b[0] == 0 && b[5] == Version1 && b[6] == 0 && b[7] == 0 {
		m.Version = Version1
		return m.read1(b[header1:], int(b[4]))
	}
	return m.read0(b[header0:], int(b[0]))
}

// Size is how long a datagram says that it is [bytes]; 0: it is too short to say it.
func Size(b []byte) int {
	if len(b) < header0 {
		return 0
	}
	return int(binary.BigEndian.Uint16(b[2:]))
}

// appendAddress appends an address of 4 or 16 bytes, which has no zone.
func appendAddress(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return append(b, four[:]...)
	}
	sixteen := a.As16()
	return append(b, sixteen[:]...)
}

// place says which record has a fault.
func place(i int, err error) error { return fmt.Errorf("record %d: %w", i+1, err) }
