// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"imbang/internal/testenv"
)

// Masquerading changes the server's side of a packet to the server's address
// and port towards it, to the service's on the way back, and nothing else.
func goldenMasquerade(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		for _, service := range []struct {
			name   string
			vip, n int
			port   int // the server's
		}{
			{"other port", vipMasq, 0, 8080}, {"same port", vipSamePort, 1, 80}, {"every port", vipAll, 3, 80},
		} {
			client, vip, server := at(f.client, 1000), at(f.vip(service.vip), 80), at(f.server(service.n), service.port)
			for protocol, first := range transports(client, vip) {
				for name, p := range variants(f, first) {
					name = service.name + ", " + protocol + name
					forth := golden{name: name, in: byClient(p), want: becomes(onward(p.To(server)))}
					answer := p.Turned().From(server)
					if protocol == "TCP" {
						answer = answer.Flags("SA")
					}
					back := golden{name: name + ", back", setup: []sent{byClient(p)},
						in: byServer(answer), want: becomes(backward(answer.From(vip)))}
					table = append(table, forth, back)
				}
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// variants are a packet, and the packet with further contents, which are not changed.
func variants(f family, p testenv.Packet) map[string]testenv.Packet {
	all := map[string]testenv.Packet{
		"":              p,
		", no data":     p.Payload(""),
		", odd length":  p.Payload("odd"),
		", ECN, DSCP":   p.TOS(0x2b),
		", no checksum": p.NoChecksum(),
	}
	if f.number == ipv4.number {
		all[", options"] = p.Options(1)
		all[", most options"] = p.Options(10)
		all[", DF"] = p.DontFragment().ID(0)
		return all
	}
	all[", hop-by-hop options"] = p.Extension(testenv.HopByHop)
	all[", destination options"] = p.Extension(testenv.Destination)
	all[", many headers"] = p.Extension(testenv.HopByHop).Extension(testenv.Destination).Extension(testenv.Routing).Extension(testenv.Destination)
	all[", atomic fragment"] = p.Fragment(0)
	return all
}

// A checksum that the hardware is still to fill in is zero in SCTP, and the
// kernel sums it up as it is: it stays zero.
func goldenPendingSCTPChecksum(t *testing.T, w *rig) {
	for _, f := range families {
		p := testenv.SCTP(at(f.client, 1000), at(f.vip(vipMasq), 80), testenv.SCTPInit)
		pending := func(p testenv.Packet) []byte {
			frame := p.Frame()
			clear(frame[len(frame)-8 : len(frame)-4]) // before the chunk's header
			return frame
		}
		w.check(t, []golden{{name: f.name, in: sent{frame: pending(p)}, want: becomesFrame(pending(onward(p.To(at(f.server(0), 8080)))))}})
	}
}
