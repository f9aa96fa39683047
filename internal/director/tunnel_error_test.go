// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A router behind the director whose next link is narrower says so to the director, which
// is the tunnel's end: the client gets the error, of each kind of tunnel, over each family.
func TestTunnelOverNarrowRouter(t *testing.T) {
	c := newCrossing(t, narrowMTU)
	for i, p := range shores {
		client := c.socket(c.client, at(p.client, 4000))
		for j, outer := range shores {
			for k, s := range tunnels {
				s.Addr, s.Port, s.Weight, s.Forward = netip.MustParseAddr(outer.server), 9, 1, model.Tunnel
				if outer.number == model.IPv4 && p.number == model.IPv6 {
					continue // without DF: the router cuts the outer packet
				}
				t.Run(fmt.Sprintf("%s, %d %d over %s", p.name, s.TunnelType, s.TunnelFlags, outer.name), func(t *testing.T) {
					c := crossing{c.in(t), c.client, c.router, c.server}
					vip := at(p.vips+fmt.Sprint(30+10*i+20*j+k), 9)
					c.serve(service(model.UDP, vip, "rr"), s)
					room := narrowMTU - overhead(s)
					want := told{kind: p.refusals().tooBig.Kind, code: p.refusals().tooBig.Code, mtu: uint32(room), by: netip.MustParseAddrPort(vip).Addr()}
					if got := c.ask(client, vip, room+1, 64); got != want {
						t.Errorf("of %d bytes: %s; want %s", room+1, got, want)
					}
				})
			}
		}
	}
}

// That a packet is too big for the way to a server behind a tunnel is told to the client in
// its own family, whatever that of the outer header is (RFC 7915, 4.2 and 5.2).
func goldenTunnelErrorsAcrossFamilies(t *testing.T, w *rig) {
	const mtu = 1400
	for _, f := range families {
		for i, s := range f.tunnelled() {
			outer := ipv4
			if s.Addr.Is6() {
				outer = ipv6
			}
			if f.number == ipv4.number && outer.number == ipv4.number {
				continue // goldenTunnelErrors
			}
			t.Run(fmt.Sprintf("%s, %d %d over %s", f.name, s.TunnelType, s.TunnelFlags, outer.name), func(t *testing.T) {
				w.check(t, w.tunnelErrors(f, outer, s, f.vip(vipTunnel+i), mtu))
			})
		}
	}
}

func (r *rig) tunnelErrors(f, outer family, s model.Server, vip string, mtu uint32) (table []golden) {
	say, n := f.refusals(), overhead(s)
	director := outer.own().String()
	icmp := outer.refusals()
	quoted := n + say.quote // what is cut off makes the kernel forget a sum
	for protocol, p := range transports(at(f.client, 4002), at(vip, 80)) {
		p = sized(p, 1390)
		frame := r.put(byClient(p), 0).frame
		in := func(m testenv.Refusal) testenv.Packet {
			return testenv.ICMP(outer.inner, director, m.Kind, m.Code).Rest(m.MTU).Quoting(frame, quoted)
		}
		out := func(m testenv.Refusal) outcome {
			frame := backward(testenv.ICMP(vip, f.client, m.Kind, m.Code).Rest(m.MTU).ID(0).Quoting(onward(p).Frame(), say.quote)).TTL(64)
			if f.number == ipv4.number {
				return becomes(frame.TOS(0xc0))
			}
			unlabelled := frame.Frame()
			unlabelled[15], unlabelled[16], unlabelled[17] = 0, 0, 0
			return becomesFrame(unlabelled)
		}
		add := func(what string, in testenv.Packet, want outcome) {
			table = append(table, golden{protocol + ", " + what, nil, byServer(in), want})
		}
		for what, m := range map[string]testenv.Refusal{"TTL": icmp.ttl, "port": icmp.port, "host": icmp.host} {
			add(what, in(m), stays("pass icmp")) // as with Linux
		}
		tooBig := icmp.tooBig
		tooBig.MTU = mtu
		if outer.number == ipv4.number {
			// The outer packet may be fragmented.
			add("too big", in(tooBig), stays("pass icmp"))
			continue
		}
		told := say.tooBig
		told.MTU = mtu - uint32(n)
		add("too big", in(tooBig), out(told))
		tooBig.MTU = 1280
		told.MTU = max(1280-uint32(n), map[bool]uint32{true: 1280}[f.number == ipv6.number])
		add("the least MTU", in(tooBig), out(told))
		add("parameter problem", testenv.ICMP(outer.inner, director, 4, 0).Quoting(frame, quoted), stays("pass icmp"))
		add("too little", in(tooBig).Quoting(frame, n+f.header+7), stays("pass icmp"))
		unknown := append([]byte{}, frame...)
		unknown[14+n+map[int]int{20: 15, 40: 23}[f.header]]++ // of the client's address
		add("unknown", in(tooBig).Quoting(unknown, quoted), stays("pass icmp"))
		short := sized(p, 1280)
		frame = r.put(byClient(short), 0).frame
		if f.number == ipv6.number {
			add("of a packet that need not be shorter", in(tooBig), stays("pass icmp"))
		}
	}
	return table
}
