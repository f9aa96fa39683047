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
// from, in the name of whom it is for. An MTU is less by the tunnel's headers.
func ToldOn(in, out []byte) error {
	before, err := dissect(in)
	if err != nil {
		return fmt.Errorf("that was no packet: %w", err)
	}
	after, err := dissect(out)
	if err != nil {
		return fmt.Errorf("that is no packet: %w", err)
	}
	if !before.isError() || !after.isError() || before.six || after.six {
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
	outer, err := headers4(in[:before.end], before.transport+8)
	if err != nil {
		return fmt.Errorf("it quotes nothing: %w", err)
	}
	inner, err := headers4(in[:before.end], outer.transport+tunnelShim(&outer))
	if err != nil {
		return fmt.Errorf("no packet in the tunnel: %w", err)
	}
	return after.tellsOf(&inner, before.segment(), inner.ip-outer.ip)
}

// headers4 finds a quoted packet, whatever it says of its length.
func headers4(frame []byte, at int) (view, error) {
	v := view{frame: frame, ip: at}
	if at > len(frame) {
		return v, errors.New("it ends before")
	}
	if err := v.dissect4(); err != nil && v.transport == 0 {
		return v, err
	}
	return v, nil
}

// tunnelShim is how many bytes are between the IP headers.
func tunnelShim(outer *view) int {
	switch at := outer.transport; {
	case outer.protocol == protoUDP:
		return 12
	case outer.protocol == protoGRE && at < len(outer.frame) && outer.frame[at]&0x80 != 0:
		return 8
	case outer.protocol == protoGRE:
		return 4
	}
	return 0
}

// tellsOf compares an error with the packet that it is about, and with the
// message that it was made of.
func (v *view) tellsOf(inner *view, message []byte, overhead int) error {
	if !bytes.Equal(v.address(0), inner.address(1)) || !bytes.Equal(v.address(1), inner.address(0)) {
		return errors.New("it is not from whom the packet is for, or not for whom it is from")
	}
	got := v.segment()
	if got[0] != message[0] || got[1] != message[1] {
		return fmt.Errorf("type %d, code %d was %d, %d", got[0], got[1], message[0], message[1])
	}
	mtu := uint32(0)
	if got[0] == 3 && got[1] == 4 {
		mtu = binary.BigEndian.Uint32(message[4:])&0xffff - uint32(overhead)
	}
	if said := binary.BigEndian.Uint32(got[4:]); said != mtu {
		return fmt.Errorf("an MTU of %d, want %d", said, mtu)
	}
	about := inner.frame[inner.ip:]
	about = about[:min(len(about), 576-28)]
	if !bytes.Equal(got[8:], about) {
		return fmt.Errorf("it quotes %x, want %x", got[8:], about)
	}
	if len(v.frame) != v.end {
		return fmt.Errorf("%d bytes are behind it", len(v.frame)-v.end)
	}
	return nil
}
