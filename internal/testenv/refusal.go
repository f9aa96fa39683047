// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Refusal is what an ICMP error says besides what it is about.
type Refusal struct {
	Kind, Code uint8
	MTU        uint32
}

// Refused judges an ICMP error by the frame that it answers: it goes back the
// way that came, from the address that it was for, and quotes as much of it as
// fits into 576 bytes, or 1280 in IPv6 (RFC 1812, 4.3.2.3; RFC 4443, 3).
func Refused(about, answer []byte) (Refusal, error) { return RefusedBy(about, answer, netip.Addr{}) }

// RefusedBy expects it to come from another address.
func RefusedBy(about, answer []byte, by netip.Addr) (Refusal, error) {
	in, err := dissect(about)
	if err != nil {
		return Refusal{}, fmt.Errorf("that was no packet: %w", err)
	}
	out, err := dissect(answer)
	if err != nil {
		return Refusal{}, fmt.Errorf("that is no packet: %w", err)
	}
	if !out.isError() || in.six != out.six {
		return Refusal{}, errors.New("that is no ICMP error")
	}
	message := out.segment()
	said := Refusal{Kind: message[0], Code: message[1], MTU: binary.BigEndian.Uint32(message[4:])}
	if _, dst := in.ends(); !by.IsValid() {
		by = dst.Addr()
	}
	if err := wayBack(&in, &out, by); err != nil {
		return said, err
	}
	for _, check := range []func(in, out *view) error{header, quote} {
		if err := check(&in, &out); err != nil {
			return said, err
		}
	}
	for _, c := range out.own("") {
		if c.off != 0 {
			return said, fmt.Errorf("wrong checksum: %s, by %#x", c.name, c.off)
		}
	}
	return said, nil
}

// wayBack compares who the answer is from and for.
func wayBack(in, out *view, by netip.Addr) error {
	if !bytes.Equal(out.frame[:6], in.frame[6:12]) || !bytes.Equal(out.frame[6:12], in.frame[:6]) {
		return errors.New("it does not go back the way it came")
	}
	src, _ := in.ends()
	from, to := out.ends()
	if from.Addr() != by || to.Addr() != src.Addr() {
		return fmt.Errorf("it is from %s for %s", from.Addr(), to.Addr())
	}
	return nil
}

// header compares the IP header with what Linux sends.
func header(_, out *view) error {
	want := []byte{0x45, 0xc0, 0, 0, 0, 0, 0, 0, 64, protoICMP} // TOS: internetwork control
	if out.six {
		want = []byte{0x60, 0, 0, 0, 0, 0, protoICMPv6, 64}
	}
	got := bytes.Clone(out.frame[out.ip : out.ip+len(want)])
	if out.six {
		got[4], got[5] = 0, 0
	} else {
		got[2], got[3] = 0, 0
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("its IP header is %x, want %x but for the length", got, want)
	}
	return nil
}

// quote compares what is quoted.
func quote(in, out *view) error {
	longest := 576
	if out.six {
		longest = 1280
	}
	about := in.frame[in.ip:in.end]
	about = about[:min(len(about), longest-(out.transport+8-out.ip))]
	if got := out.segment()[8:]; !bytes.Equal(got, about) {
		return fmt.Errorf("it quotes %d bytes (%x), want %d (%x)", len(got), got, len(about), about)
	}
	if len(out.frame) != out.end {
		return fmt.Errorf("%d bytes are behind it", len(out.frame)-out.end)
	}
	return nil
}
