// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"

	"imbang/internal/testenv"
)

// The director as a server: what it masquerades goes to its stack translated,
// what it routes directly as it is, and neither is a hop further. The stack's
// answers leave in the service's name.
func goldenLocalServer(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		add := func(name string, vip, server string, p testenv.Packet) {
			answer := p.Turned().From(server)
			if name[0] == 'T' {
				answer = answer.Flags("SA")
			}
			table = append(table,
				golden{name: name, in: toDirector(p), want: goesOn("pass local", p.To(server))},
				golden{name: name + ", TTL 1", in: toDirector(p.TTL(1)), want: goesOn("pass local", p.To(server).TTL(1))},
				golden{name: name + ", back", setup: []sent{toDirector(p)}, in: byDirector(answer), want: goesOn("", answer.From(vip))})
		}
		for _, masq := range []bool{true, false} {
			vip, server := at(f.vip(vipLocalDirect), 80), at(f.vip(vipLocalDirect), 80)
			if masq {
				vip, server = at(f.vip(vipLocal), 80), at(f.own().String(), 8080)
			}
			for protocol, first := range transports(at(f.client, 4000), vip) {
				for name, p := range variants(f, first) {
					add(fmt.Sprintf("%s%s, masquerading %t", protocol, name, masq), vip, server, p)
				}
			}
		}
		// The stack takes nothing for loopback from a device.
		for protocol, p := range transports(at(f.client, 4000), at(f.vip(vipLoopback), 80)) {
			table = append(table, golden{name: protocol + ", loopback", in: byClient(p), want: stays("drop to loopback")})
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// The stack's errors about what it got as a server are translated, and errors
// about what it answered.
func goldenLocalICMP(t *testing.T, w *rig) {
	for _, f := range families {
		translated, others := f.messages()
		var table []golden
		own, virtual := f.own().String(), f.vip(vipLocal)
		for protocol, p := range transports(at(f.client, 4100), at(virtual, 80)) {
			server := at(own, 8080)
			setup := []sent{toDirector(p)}
			answer := p.Turned().From(server).Flags("SA").Payload("the answer")
			for _, m := range translated {
				f.eachQuote(p.To(server), p, func(name string, about, becoming testenv.Packet, quote int) {
					in := m.between(own, f.client).Quoting(about.Frame(), quote)
					out := m.between(virtual, f.client).Quoting(becoming.Frame(), quote)
					table = append(table, golden{protocol + ", " + m.name + ", " + name, setup, byDirector(in), goesOn("", out)})
				})
				f.eachQuote(answer.From(at(virtual, 80)), answer, func(name string, about, becoming testenv.Packet, quote int) {
					in := m.between(f.router, virtual).Quoting(about.Frame(), quote)
					out := m.between(f.router, own).Quoting(becoming.Frame(), quote)
					table = append(table, golden{protocol + ", " + m.name + " about an answer, " + name, append(setup, byDirector(answer)), toDirector(in), goesOn("pass local", out)})
				})
			}
			for _, m := range others {
				same := m.between(own, f.client).Quoting(p.To(server).Frame(), 1000)
				table = append(table, golden{protocol + ", " + m.name, setup, byDirector(same), goesOn("", same)})
			}
			direct := p.To(at(f.vip(vipLocalDirect), 80))
			same := translated[0].between(f.vip(vipLocalDirect), f.client).Quoting(direct.Frame(), 1000)
			table = append(table, golden{protocol + ", direct routing", []sent{toDirector(direct)}, byDirector(same), goesOn("", same)})
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// Fragments of a masqueraded packet, and of its answer, which the stack itself
// cut up.
func goldenLocalFragments(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		id := uint32(0x2000)
		pieces := func(name, reason string, p, out testenv.Packet, here bool, setup ...sent) {
			id++
			in, want := p.ID(id).Fragments(32), out.ID(id).Fragments(32)
			for i := range in {
				one := sent{frame: in[i], fromHere: here, stays: true}
				table = append(table, golden{fmt.Sprintf("%s, piece %d", name, i), setup, one, comesOut(reason, pass, want[i])})
				setup = append(setup[:len(setup):len(setup)], one)
			}
		}
		const data = "more than sixty bytes of data that will go in pieces of thirty-two bytes."
		vip, server := at(f.vip(vipLocal), 80), at(f.own().String(), 8080)
		p := testenv.UDP(at(f.client, 4200), vip, data)
		back := p.Turned().From(server)
		pieces("forth", "pass local", p, p.To(server), false)
		pieces("back", "", back, back.From(vip), true, toDirector(p))
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// On the way out, what is no answer of the director's as a server leaves as it
// is and is counted nowhere.
func goldenOutgoing(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		own, server := f.own().String(), at(f.server(0), 8080)
		for protocol, p := range transports(at(f.client, 4300), at(f.vip(vipMasq), 80)) {
			answer := p.Turned().Flags("SA")
			untouched := func(name string, s sent) {
				table = append(table, golden{protocol + ", " + name, []sent{byClient(p)}, s, comesOut("", pass, s.frame)})
			}
			// A forwarded packet was in a program of the way in.
			forwarded := byDirector(p.Turned().From(server))
			forwarded.context.IngressIfindex = uint32(w.server)
			untouched("a server's answer", forwarded)
			untouched("the virtual address's own", byDirector(answer))
			untouched("the director's own", byDirector(p.From(at(own, 40000)).To(server)))
			untouched("a fragment", sent{frame: p.Turned().From(server).ID(77).Payload("sixty-odd bytes of data that will go in pieces of thirty-two bytes.").Fragments(32)[1], fromHere: true})
		}
		table = append(table, golden{name: "ping", in: byDirector(testenv.Ping(own, f.client)), want: goesOn("", testenv.Ping(own, f.client))})
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}
