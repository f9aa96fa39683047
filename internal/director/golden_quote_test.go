// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"imbang/internal/testenv"
)

// shortened is a frame whose packet says that it ends n bytes behind its IP
// header; all other contents stay.
func (f family) shortened(frame []byte, n int) []byte {
	if f.number == ipv6.number {
		return altered(frame, 14+4, uint16(n))
	}
	return testenv.Summed(altered(frame, 14+2, uint16(f.header+n)))
}

// What an error quotes behind the end of the packet is no checksum of it, even
// where one would be.
func goldenQuotedShortPacket(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		m, _ := f.messages()
		for _, x := range f.exchanges() {
			protocol, _, _ := strings.Cut(x.name, ",")
			for _, c := range map[string][]struct{ end, check int }{"TCP": {{8, 16}, {16, 16}, {17, 16}}, "SCTP": {{8, 8}, {11, 8}}}[protocol] {
				about, becoming := f.shortened(x.onward.Frame(), c.end), f.shortened(x.packet.TTL(63).Frame(), c.end)
				check := 14 + f.header + c.check
				copy(becoming[check:], about[check:])
				in, out := m[0].between(x.server, f.client), m[0].between(x.vip, f.client)
				table = append(table, golden{fmt.Sprintf("%s, %d bytes", x.name, c.end), []sent{byClient(x.packet)},
					byServer(in.Quoting(about, 1000)), becomes(backward(out.Quoting(becoming, 1000)))})
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// An SCTP checksum that was still to be filled in when the packet was quoted
// stays zero.
func goldenQuotedPendingSCTPChecksum(t *testing.T, w *rig) {
	for _, f := range families {
		p := testenv.SCTP(at(f.client, 2000), at(f.vip(vipMasq), 80), testenv.SCTPInit)
		server := at(f.server(0), 8080)
		pending := func(p testenv.Packet) []byte {
			frame := p.Frame()
			binary.LittleEndian.PutUint32(frame[14+f.header+8:], 0)
			return frame
		}
		m, _ := f.messages()
		in := m[0].between(f.server(0), f.client).Quoting(pending(onward(p.To(server))), 1000)
		out := m[0].between(f.vip(vipMasq), f.client).Quoting(pending(p.TTL(63)), 1000)
		w.check(t, []golden{{f.name, []sent{byClient(p)}, byServer(in), becomes(backward(out))}})
	}
}

// Only TCP has super-packets that are too long for a length (ip_totlen).
func goldenWithoutLength(t *testing.T, w *rig) {
	for _, f := range families {
		lengthless := func(p testenv.Packet) []byte {
			frame := p.Frame()
			if f.number == ipv6.number {
				return altered(frame, 14+4, 0)
			}
			old := binary.BigEndian.Uint16(frame[14+2:])
			clear(frame[14+2 : 14+4])
			sum := uint32(binary.BigEndian.Uint16(frame[14+10:])) + uint32(old)
			return altered(frame, 14+10, uint16(sum>>16+sum))
		}
		var table []golden
		for protocol, p := range transports(at(f.client, 2001), at(f.vip(vipMasq), 80)) {
			in := lengthless(p)
			want := stays("pass truncated")
			if protocol == "TCP" {
				want = becomesFrame(lengthless(onward(p.To(at(f.server(0), 8080)))))
			}
			table = append(table, golden{name: protocol, in: sent{frame: bytes.Clone(in), context: skBuff{GSOSize: 1000, GSOSegs: 2}}, want: want})
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}
