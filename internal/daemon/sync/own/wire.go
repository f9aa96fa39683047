// SPDX-License-Identifier: Apache-2.0

package own

import (
	"encoding/binary"
)

// Port is the UDP port of the protocol. It is not registered: 8788 to 8792 are unassigned
// in IANA's registry (8787 is msgsrvr, 8793 acd-pm). It is below the ports of the
// kernel's synchronization, 8848 and one for each further thread, at most 64.
const Port = 8790

// Version is the version of the wire format, and PairVersion that of the directors of a
// pair: other roles refuse their datagrams, and they those of other roles.
const (
	Version     = 2
	PairVersion = 3
)

// Bounds of Config.MaxDatagram [bytes of UDP payload].
const (
	MinDatagram = 512 // room for one record of any kind
	MaxDatagram = 9000
)

const (
	headerSize = 24
	tagSize    = 16
	// magic is what a datagram begins with. The kernel's version 1 begins with 0. Its
	// version 0 has the datagram's size in bytes 2 and 3: 0xff01 exceeds MaxDatagram.
	magic = "iB\xff"
)

// kind is what a datagram is.
type kind uint8

// Datagrams of a sender, and those of a receiver.
const (
	kindData      kind = 1
	kindBulkStart kind = 2
	kindBeat      kind = 3
	kindWelcome   kind = 4
	kindReset     kind = 5
	kindHello     kind = 17
	kindAck       kind = 18
)

// Flags of datagrams, by kind.
const (
	dataBulk uint8 = 1 << 0 // entries are copies for the receivers of a bulk transfer

	bulkAll uint8 = 1 << 0 // of a pair: with replicas

	beatAnswer uint8 = 1 << 0 // acknowledge at once
	beatEnd    uint8 = 1 << 1 // the session ends

	helloProbe uint8 = 1 << 0 // of a pair: how far is the stream, by all that happened up to now

	ackWant   uint8 = 1 << 0 // requests a bulk transfer
	ackSynced uint8 = 1 << 1 // has the whole table
	ackLacks  uint8 = 1 << 2 // some entries were not entered: their number is in front of the ranges
	ackAll    uint8 = 1 << 3 // of a pair: the bulk transfer is to have replicas, too
)

// sizes are the lengths that the body of each kind has [bytes]: at least, and in steps.
var sizes = [kindAck + 1]struct{ least, step int }{
	kindData: {1, 1}, kindBulkStart: {participantSize, participantSize}, kindBeat: {16, 0}, kindWelcome: {24, 0},
	kindReset: {16, 0}, kindHello: {16, 0}, kindAck: {28, rangeSize},
}

// header is what all datagrams begin with.
type header struct {
	kind    kind
	flags   uint8
	group   uint16
	session uint64
	number  uint64
	pair    bool // of PairVersion
}

// appendHeader begins a datagram.
func appendHeader(b []byte, h header) []byte {
	version := byte(Version)
	if h.pair {
		version = PairVersion
	}
	b = append(append(b, magic...), version, byte(h.kind), h.flags)
	b = binary.BigEndian.AppendUint16(b, h.group)
	b = binary.BigEndian.AppendUint64(b, h.session)
	return binary.BigEndian.AppendUint64(b, h.number)
}

// readHeader reads a datagram's header and separates its body, without the tag. It is the
// part of the checks that costs no HMAC.
func readHeader(b []byte) (h header, body []byte, r Reason) {
	if len(b) < headerSize+tagSize || len(b) > MaxDatagram {
		return h, nil, ReasonLength
	}
	if string(b[:3]) != magic {
		return h, nil, ReasonForeign
	}
	if b[3] != Version && b[3] != PairVersion {
		return h, nil, ReasonVersion
	}
	h = header{
		kind: kind(b[4]), flags: b[5], group: binary.BigEndian.Uint16(b[6:]),
		session: binary.BigEndian.Uint64(b[8:]), number: binary.BigEndian.Uint64(b[16:]), pair: b[3] == PairVersion,
	}
	body = b[headerSize : len(b)-tagSize]
	if h.kind > kindAck || sizes[h.kind].least == 0 {
		return h, nil, ReasonKind
	}
	size := sizes[h.kind]
	switch {
	case !h.pair:
	case h.kind == kindWelcome:
		size.least += welcomeNext
	case h.kind == kindData || h.kind == kindBeat:
		size.least += stampSize
	}
	more := len(body) - size.least
	if more < 0 || size.step == 0 && more != 0 || size.step > 0 && more%size.step != 0 {
		return h, nil, ReasonLength
	}
	return h, body, accepted
}

// beat is the body of a sender's periodic datagram.
type beat struct {
	oldest uint64 // number of the oldest datagram that can be sent again
	next   uint64 // number of the next one
}

func (x beat) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, x.oldest)
	return binary.BigEndian.AppendUint64(b, x.next)
}

func readBeat(b []byte) beat {
	return beat{oldest: binary.BigEndian.Uint64(b), next: binary.BigEndian.Uint64(b[8:])}
}

// hello asks senders to prove that they are running.
type hello struct{ receiver, nonce uint64 }

func (x hello) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, x.receiver)
	return binary.BigEndian.AppendUint64(b, x.nonce)
}

func readHello(b []byte) hello {
	return hello{receiver: binary.BigEndian.Uint64(b), nonce: binary.BigEndian.Uint64(b[8:])}
}

// welcome is the proof.
type welcome struct {
	receiver, nonce uint64
	admitted        uint64 // [ms] by the sender's clock, since its session began
	next            uint64 // of a pair: number of the next datagram of the stream; 0: no question was asked
}

const welcomeNext = 8

func (x welcome) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, x.receiver)
	b = binary.BigEndian.AppendUint64(b, x.nonce)
	return binary.BigEndian.AppendUint64(b, x.admitted)
}

func (x welcome) appendPair(b []byte) []byte {
	return binary.BigEndian.AppendUint64(x.append(b), x.next)
}

func readWelcome(b []byte) welcome {
	w := welcome{receiver: binary.BigEndian.Uint64(b), nonce: binary.BigEndian.Uint64(b[8:]), admitted: binary.BigEndian.Uint64(b[16:])}
	if len(b) >= 24+welcomeNext {
		w.next = binary.BigEndian.Uint64(b[24:])
	}
	return w
}

// reset says that an acknowledgement came from a receiver that the sender does not know.
type reset struct{ receiver, counter uint64 }

func (x reset) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, x.receiver)
	return binary.BigEndian.AppendUint64(b, x.counter)
}

func readReset(b []byte) reset {
	return reset{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// ack is the state of a receiver. Its ranges are read with readRange.
type ack struct {
	receiver, admitted uint64
	cumulative         uint64 // all up to this number were applied
	request            uint32 // number of the latest request for a bulk transfer
}

func (x ack) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, x.receiver)
	b = binary.BigEndian.AppendUint64(b, x.admitted)
	b = binary.BigEndian.AppendUint64(b, x.cumulative)
	return binary.BigEndian.AppendUint32(b, x.request)
}

func readAck(b []byte) (x ack, ranges []byte) {
	return ack{
		receiver: binary.BigEndian.Uint64(b), admitted: binary.BigEndian.Uint64(b[8:]),
		cumulative: binary.BigEndian.Uint64(b[16:]), request: binary.BigEndian.Uint32(b[24:]),
	}, b[28:]
}

const rangeSize = 4

// appendRange appends a range of missing datagrams: the first, and how many.
func appendRange(b []byte, cumulative, first uint64, n int) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(first-cumulative))
	return binary.BigEndian.AppendUint16(b, uint16(n))
}

func readRange(b []byte, cumulative uint64) (first uint64, n int) {
	return cumulative + uint64(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
}

const participantSize = 12

// participant is a receiver for whom a bulk transfer begins, with its request.
type participant struct {
	receiver uint64
	request  uint32
}

func (x participant) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, x.receiver)
	return binary.BigEndian.AppendUint32(b, x.request)
}

func readParticipant(b []byte) participant {
	return participant{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}
}
