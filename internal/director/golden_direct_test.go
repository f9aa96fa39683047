// SPDX-License-Identifier: Apache-2.0

package director

import "testing"

// Direct routing leaves a packet as it is but for the TTL, and changes the
// hardware addresses. The answers do not come here; one that does goes its way.
func goldenDirectRouting(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		client, vip := at(f.client, 1000), at(f.vip(vipDirect), 80)
		for protocol, first := range transports(client, vip) {
			for name, p := range variants(f, first) {
				table = append(table, golden{name: protocol + name, in: byClient(p), want: becomes(onward(p))})
			}
			if protocol == "TCP" {
				data := first.Flags("PA").Payload("GET /")
				table = append(table, golden{name: "TCP data", setup: []sent{byClient(first), byClient(first.Flags("A"))}, in: byClient(data), want: becomes(onward(data))})
			}
			answer := first.Turned().Flags("SA")
			table = append(table, golden{name: protocol + " answer", setup: []sent{byClient(first)}, in: byServer(answer), want: stays("pass no service")})
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// A packet with a firewall mark is for the mark's service, whatever it is for.
func goldenMarkedPackets(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		for name, p := range transports(at(f.client, 1000), at(f.vip(vipMarked), 7777)) {
			marked := func(mark uint32) sent { return sent{context: skBuff{Mark: mark}, frame: p.Frame()} }
			table = append(table,
				golden{name: name, in: marked(markMasq), want: becomes(onward(p.To(at(f.server(5), 8080))))},
				golden{name: name + " without", in: byClient(p.From(at(f.client, 1001))), want: stays("pass no service")},
			)
			p = p.From(at(f.client, 1002))
			table = append(table, golden{name: name + " direct", in: marked(markDirect), want: becomes(onward(p))})
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}
