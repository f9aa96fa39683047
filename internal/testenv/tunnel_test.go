// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// tunnelled are packets behind each kind of header, by hand.
func tunnelled(inner Packet, src, dst string) map[string][]byte {
	outer := packet(protoIPv4, src, dst).TOS(0x2a).TTL(9).DontFragment()
	packet, family, kind := inner.Frame()[etherHeader:], uint8(protoIPv4), uint16(etherIPv4)
	if inner.six() {
		family, kind = protoIPv6, etherIPv6
	}
	with := func(protocol uint8, shim ...byte) []byte {
		p := outer
		p.protocol = protocol
		return p.framed(slices.Concat(shim, packet))
	}
	gre := binary.BigEndian.AppendUint16([]byte{0x80, 0}, kind)
	sum := Sum(append(gre, 0, 0, 0, 0), packet)
	gue := UDP(src, dst, string([]byte{0, family, 0, 0})+string(packet)).TOS(0x2a).TTL(9).DontFragment()
	return map[string][]byte{
		"ipip":        with(family),
		"gre":         with(protoGRE, 0, 0, gre[2], gre[3]),
		"gre checked": with(protoGRE, 0x80, 0, gre[2], gre[3], uint8(sum>>8), uint8(sum), 0, 0),
		"gue":         gue.NoChecksum().Frame(), "gue checked": gue.Frame(),
	}
}

func TestUnwrap(t *testing.T) {
	for _, inner := range []Packet{TCP(a4, b4, "A").Payload("x"), UDP(a6, b6, "data")} {
		for _, ends := range [][2]string{{"192.0.2.1:50000", "192.0.2.2:6080"}, {"[2001:db8::1]:50000", "[2001:db8::2]:6080"}} {
			for name, frame := range tunnelled(inner, ends[0], ends[1]) {
				got, unwrapped, err := Unwrap(frame)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if !bytes.Equal(unwrapped, inner.Frame()) {
					t.Errorf("%s: the packet inside is %x, want %x", name, unwrapped, inner.Frame())
				}
				src, dst := netip.MustParseAddrPort(ends[0]).Addr(), netip.MustParseAddrPort(ends[1]).Addr()
				want := Tunnel{Src: src, Dst: dst, TOS: 0x2a, TTL: 9, DontFragment: src.Is4()}
				want.Kind, want.Checked = strings.CutSuffix(name, " checked")
				if want.Kind == "gue" {
					want.Port = GUEPort
				}
				if got != want {
					t.Errorf("%s: %+v, want %+v", name, got, want)
				}
				for at := etherHeader; at < len(frame)-len(inner.Frame())+etherHeader; at++ {
					bad := bytes.Clone(frame)
					bad[at] ^= 0x10
					again, _, err := Unwrap(bad)
					// UDP's source port, and its checksum if there is none; IPv6's flow label.
					if err == nil && again == got && name != "gue" && !src.Is6() {
						t.Errorf("%s: byte %d changed, nobody saw", name, at)
					}
				}
			}
		}
	}
}
