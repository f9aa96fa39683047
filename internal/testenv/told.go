// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ToldOn judges an ICMP error that was made of another one, about the way
// through a tunnel: it says the same about the packet inside, to whom that is
// from, in the name of whom it is for. An MTU is less by the tunnel's headers. Of IPv4
// in IPv4 that is any error; of other tunnels, that a packet is too big, in the family of
// the packet inside (RFC 7915, 4.2 and 5.2), and to IPv6 never less than 1280 (RFC 2473, 7.1).
func ToldOn(in, out []byte) error {
	before, err := dissect(in)
	if err != nil {
		return fmt.Errorf("that was no packet: %w", err)
	}
	after, err := dissect(out)
	if err != nil {
		return fmt.Errorf("that is no packet: %w", err)
	}
	if !before.isError() || !after.isError() {
		return errors.New("not an error about an error")
	}
	for _, c := range after.own("") {
		if c.off != 0 {
			return fmt.Errorf("wrong checksum: %s, by %#x", c.name, c.off)
		}
	}
	if err := header(nil, &after); err != nil {
		return err
	}
	outer, err := headers(in[:before.end], before.transport+8, before.six)
	if err != nil {
		return fmt.Errorf("it quotes nothing: %w", err)
	}
	shim, six, err := inTunnel(&outer)
	if err != nil {
		return err
	}
	inner, err := headers(in[:before.end], outer.transport+shim, six)
	if err != nil {
		return fmt.Errorf("no packet in the tunnel: %w", err)
	}
	if six != after.six {
		return errors.New("not of the family of the packet in the tunnel")
	}
	return after.tellsOf(&inner, &before, inner.ip-outer.ip)
}

// headers finds a quoted packet, whatever it says of its length.
func headers(frame []byte, at int, six bool) (view, error) {
	if at > len(frame) {
		return view{}, errors.New("it ends before")
	}
	v, err := dissectAt(frame, at, six)
	if err != nil && v.transport == 0 {
		return v, err
	}
	return v, nil
}

// inTunnel is how many bytes are between the IP headers, and the family of the second.
func inTunnel(outer *view) (shim int, six bool, err error) {
	behind := outer.frame[min(outer.transport, len(outer.frame)):]
	switch {
	case outer.protocol == protoIPv4 || outer.protocol == protoIPv6:
		return 0, outer.protocol == protoIPv6, nil
	case outer.protocol == protoUDP && len(behind) >= 12:
		return 12, behind[9] == protoIPv6, nil
	case outer.protocol == protoGRE && len(behind) >= 4:
		shim = 4
		if behind[0]&0x80 != 0 {
			shim = 8
		}
		return shim, binary.BigEndian.Uint16(behind[2:]) == etherIPv6, nil
	}
	return 0, false, fmt.Errorf("protocol %d is no tunnel", outer.protocol)
}

// tooBig reports whether an ICMP message is that a packet is too big.
func tooBig(message []byte, six bool) bool {
	return six && message[0] == 2 && message[1] == 0 || !six && message[0] == 3 && message[1] == 4
}

// tellsOf compares an error with the packet that it is about, and with the
// error that it was made of.
func (v *view) tellsOf(inner, before *view, overhead int) error {
	if !bytes.Equal(v.address(0), inner.address(1)) || !bytes.Equal(v.address(1), inner.address(0)) {
		return errors.New("it is not from whom the packet is for, or not for whom it is from")
	}
	got, message := v.segment(), before.segment()
	big := tooBig(message, before.six)
	if big != tooBig(got, v.six) || !big && (v.six || before.six || got[0] != message[0] || got[1] != message[1]) {
		return fmt.Errorf("type %d, code %d was %d, %d", got[0], got[1], message[0], message[1])
	}
	mtu, quote := uint32(0), 576-28
	if big {
		mtu = binary.BigEndian.Uint32(message[4:])
		if !before.six {
			mtu &= 0xffff
		}
		mtu -= uint32(overhead)
	}
	if v.six {
		mtu, quote = uint32(max(1280, int32(mtu))), 1280-48
	}
	if said := binary.BigEndian.Uint32(got[4:]); said != mtu {
		return fmt.Errorf("an MTU of %d, want %d", said, mtu)
	}
	about := inner.frame[inner.ip:]
	about = about[:min(len(about), quote)]
	if !bytes.Equal(got[8:], about) {
		return fmt.Errorf("it quotes %x, want %x", got[8:], about)
	}
	if len(v.frame) != v.end {
		return fmt.Errorf("%d bytes are behind it", len(v.frame)-v.end)
	}
	return nil
}
