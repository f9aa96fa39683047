// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"

	"imbang/internal/testenv"
)

// Each fragment is forwarded as it comes: translated, it is the fragment of
// the translated packet. The first one tells where the others go; one that
// comes before it is left to the stack.
func goldenFragments(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		id := uint32(0x1000) // of its own for each packet
		// pieces plays a packet piece by piece. Before `before`, it is unknown.
		pieces := func(name string, fromServer bool, p, out testenv.Packet, setup ...sent) {
			id++
			p, out = p.ID(id), out.ID(id)
			in, want := p.Fragments(32), out.Fragments(32)
			last := len(in) - 1
			table = append(table, golden{name + ", last one too early", setup, sent{fromServer: fromServer, frame: in[last]}, stays("pass fragment")})
			passed := setup
			for i := range in {
				one := sent{fromServer: fromServer, frame: in[i]}
				table = append(table, golden{fmt.Sprintf("%s, piece %d", name, i), passed, one, becomesFrame(want[i])})
				passed = append(passed[:len(passed):len(passed)], one)
			}
			// Out of order, but the first one first.
			first := sent{fromServer: fromServer, frame: in[0]}
			table = append(table, golden{name + ", last one early", append(setup[:len(setup):len(setup)], first), sent{fromServer: fromServer, frame: in[last]}, becomesFrame(want[last])})
		}
		const data = "ninety-odd bytes of data, whatever they say, are enough to fill a few pieces of thirty-two each."
		for protocol, p := range transports(at(f.client, 3000), at(f.vip(vipSamePort), 80)) {
			p = p.Payload(data)
			server := at(f.server(1), 80)
			back := p.Turned().From(server).Flags("SA")
			pieces(protocol, false, p, onward(p.To(server)))
			pieces(protocol+", back", true, back, backward(back.From(at(f.vip(vipSamePort), 80))), byClient(p))
			direct := p.To(at(f.vip(vipDirect), 80))
			pieces(protocol+", direct routing", false, direct, onward(direct))
			if protocol == "SCTP" { // its checksum is about what only all of them have
				first := p.To(at(f.vip(vipMasq), 80)).ID(99).Fragments(32)[0]
				table = append(table, golden{protocol + ", other port", nil, sent{frame: first}, stays("drop sctp fragment")})
				continue
			}
			other, server := p.To(at(f.vip(vipMasq), 80)), at(f.server(0), 8080)
			back = other.Turned().From(server).Flags("SA")
			pieces(protocol+", other port", false, other, onward(other.To(server)))
			pieces(protocol+", other port, back", true, back, backward(back.From(at(f.vip(vipMasq), 80))), byClient(other))
			if f.number == ipv4.number {
				pieces(protocol+", options", false, other.Options(2), onward(other.To(server).Options(2)))
				continue
			}
			options := other.Extension(testenv.HopByHop).Extension(testenv.Destination)
			pieces(protocol+", extension headers", false, options, onward(options.To(server)))
		}
		once := testenv.UDP(at(f.client, 3000), at(f.vip(vipOnePacket), 80), data)
		pieces("one packet", false, once, onward(once.To(at(f.server(4), 8080))))
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// The pieces of two packets come one by one, in turn.
func goldenFragmentsInterleaved(t *testing.T, w *rig) {
	for _, f := range families {
		const data = "ninety-odd bytes of data, whatever they say, are enough to fill a few pieces of thirty-two each."
		a := testenv.UDP(at(f.client, 3001), at(f.vip(vipMasq), 80), data).ID(1)
		b := testenv.UDP(at(f.client, 3002), at(f.vip(vipMasq), 80), data).ID(2)
		c := testenv.UDP(at(f.client, 3003), at(f.vip(vipSamePort), 80), data).ID(1) // not to the same address
		to := [...]string{at(f.server(0), 8080), at(f.server(0), 8080), at(f.server(1), 80)}
		var passed []sent
		var table []golden
		for piece := range a.Fragments(32) {
			for i, p := range []testenv.Packet{a, b, c} {
				in := sent{frame: p.Fragments(32)[piece]}
				table = append(table, golden{fmt.Sprintf("%c%d", 'a'+i, piece), passed, in, becomesFrame(onward(p.To(to[i])).Fragments(32)[piece])})
				passed = append(passed[:len(passed):len(passed)], in)
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// What cannot go on: no error is sent for a later fragment, except IPv6's
// that it is too big.
func goldenFragmentsRefused(t *testing.T, w *rig) {
	for _, f := range families {
		say := f.refusals()
		p := sized(testenv.UDP(at(f.client, 3004), at(f.vip(vipMasq), 80), ""), 1500).Payload(string(make([]byte, 4000))).ID(77)
		pieces := p.Fragments(1480)
		big := p.Fragments(1504)
		setup := []sent{{frame: pieces[0]}}
		if f.number == ipv6.number {
			pieces = p.Fragments(1448)
			setup = []sent{{frame: pieces[0]}}
		}
		expired := p.TTL(1).Fragments(len(pieces[0]) - 14 - f.header)
		if f.number == ipv6.number {
			expired = p.TTL(1).Fragments(1448)
			tooBig := refused("too big", say.tooBig)
			w.check(t, []golden{
				{f.name + ", first too big", nil, sent{frame: big[0]}, tooBig},
				{f.name + ", later too big", setup, sent{frame: big[1]}, tooBig},
			})
		}
		w.check(t, []golden{
			{f.name + ", TTL of the first", nil, sent{frame: expired[0]}, refused("ttl exceeded", say.ttl)},
			{f.name + ", TTL of a later one", setup, sent{frame: expired[1]}, stays("refused ttl exceeded")},
			{f.name + ", no server", nil, sent{frame: p.To(at(f.vip(vipEmpty), 80)).Fragments(1448)[0]}, refused("no server", say.port)},
		})
	}
}
