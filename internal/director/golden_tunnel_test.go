// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// wrapped expects a packet to come out behind the header of a tunnel.
func wrapped(p testenv.Packet, want testenv.Tunnel) outcome { return wrappedFrame(p.Frame(), want) }

func wrappedFrame(frame []byte, want testenv.Tunnel) outcome {
	return outcome{"", func(t *testing.T, _ []byte, got result) {
		t.Helper()
		if got.verdict != redirect {
			t.Fatalf("%s, want redirect", got.verdict)
		}
		tunnel, inner, err := testenv.Unwrap(got.frame)
		if err != nil || tunnel != want {
			t.Errorf("tunnel %+v, %v; want %+v", tunnel, err, want)
		}
		if diff := cmp.Diff(frame, inner); diff != "" {
			t.Errorf("the packet inside differs (-want +got):\n%s", diff)
		}
	}}
}

// tunnelHeader is what a server's tunnel puts before a packet with TTL 64, DF and no
// traffic class.
func (f family) tunnelHeader(s model.Server) testenv.Tunnel {
	of, kinds := ipv4, map[model.TunnelType]string{model.IPIP: "ipip", model.GRE: "gre", model.GUE: "gue"}
	if s.Addr.Is6() {
		of = ipv6
	}
	return testenv.Tunnel{
		Src: netip.MustParsePrefix(of.serverLink).Addr(), Dst: s.Addr, TTL: 63, Kind: kinds[s.TunnelType],
		Port: s.TunnelPort, Checked: s.TunnelFlags != 0,
		DontFragment: f.number == model.IPv4 && s.Addr.Is4(),
	}
}

// overhead is how much longer it makes a packet.
func overhead(s model.Server) int {
	n := map[bool]int{true: 20, false: 40}[s.Addr.Is4()]
	switch {
	case s.TunnelType == model.GUE:
		n += 12
	case s.TunnelType == model.GRE && s.TunnelFlags != 0:
		n += 8
	case s.TunnelType == model.GRE:
		n += 4
	}
	return n
}

// A packet arrives behind each kind of header as it was, one hop older, and
// the header has its traffic class, TTL and DF (ip_vs_prepare_tunneled_skb).
func goldenTunnels(t *testing.T, w *rig) {
	for _, f := range families {
		say := f.refusals()
		var table []golden
		for i, s := range f.tunnelled() {
			header := f.tunnelHeader(s)
			for protocol, p := range transports(at(f.client, 4000), at(f.vip(vipTunnel+i), 80)) {
				name := fmt.Sprintf("%s, %s %d to %s", protocol, header.Kind, s.TunnelFlags, s.Addr)
				p = p.DontFragment()
				for variant, p := range variants(f, p) {
					want := header
					if variant == ", ECN, DSCP" {
						want.TOS = 0x2a // congestion is told inside (RFC 3168, 9.1.1)
					}
					table = append(table, golden{name + variant, nil, byClient(p), wrapped(onward(p), want)})
				}
				if protocol == "TCP" {
					data := p.Flags("PA").Payload("GET /")
					table = append(table, golden{name + ", data", []sent{byClient(p), byClient(p.Flags("A"))}, byClient(data), wrapped(onward(data), header)})
				}
				last := header
				last.TTL = 1
				table = append(table, golden{name + ", TTL 2", nil, byClient(p.TTL(2)), wrapped(onward(p).TTL(1), last)},
					golden{name + ", TTL 1", nil, byClient(p.TTL(1)), refused("ttl exceeded", say.ttl)})
				table = append(table, tunnelFit(f, name, p, s, header)...)
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// tunnelFit is about the longest packet that the tunnel has room for.
func tunnelFit(f family, name string, p testenv.Packet, s model.Server, header testenv.Tunnel) (table []golden) {
	room := 1500 - overhead(s)
	tooBig := f.refusals().tooBig
	tooBig.MTU = uint32(room)
	fits, long := sized(p, room), sized(p, room+1)
	table = append(table,
		golden{name + ", just fits", nil, byClient(fits), wrapped(onward(fits), header)},
		golden{name + ", too big", nil, byClient(long), refused("too big", tooBig)})
	return table
}

// Fragments go into the tunnel as they come.
func goldenTunnelFragments(t *testing.T, w *rig) {
	for _, f := range families {
		var table []golden
		for i, s := range f.tunnelled() {
			header := f.tunnelHeader(s)
			header.DontFragment = false
			p := testenv.UDP(at(f.client, 4001), at(f.vip(vipTunnel+i), 80), "the data of two fragments")
			var passed []sent
			for piece, frame := range p.Fragments(16) {
				want := onward(p).Fragments(16)[piece]
				in := sent{frame: frame}
				table = append(table, golden{fmt.Sprintf("%s %d to %s, piece %d", header.Kind, s.TunnelFlags, s.Addr, piece), passed, in,
					wrappedFrame(want, header)})
				passed = append(passed[:len(passed):len(passed)], in)
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// An error about the way to a server behind a tunnel is addressed to the
// director: the client is told, about its own packet, with the room that is
// left inside. As in Linux, of IPv4 in IPv4.
func goldenTunnelErrors(t *testing.T, w *rig) {
	f := ipv4
	errors, others := f.messages()
	var table []golden
	director := netip.MustParsePrefix(f.serverLink).Addr().String()
	for i, s := range f.tunnelled()[:len(tunnels)] {
		vip, n := f.vip(vipTunnel+i), overhead(s)
		for protocol, p := range transports(at(f.client, 4002), at(vip, 80)) {
			name := fmt.Sprintf("%s, %s %d, ", protocol, f.tunnelHeader(s).Kind, s.TunnelFlags)
			p = p.DontFragment()
			outer := w.put(byClient(p), 0).frame
			add := func(what string, in testenv.Packet, want outcome) {
				table = append(table, golden{name + what, nil, byServer(in), want})
			}
			for _, m := range errors {
				in, out := m.between(f.inner, director), m.between(vip, f.client).TOS(0xc0).ID(0)
				if m.rest != 0 {
					out = out.Rest(m.rest - uint32(n))
				}
				for _, quoted := range []int{n + 28, n + 29, 1000} {
					add(fmt.Sprintf("%s, %d bytes", m.name, quoted), in.Quoting(outer, quoted),
						becomes(backward(out.Quoting(onward(p).Frame(), quoted-n)).TTL(64)))
				}
				add(m.name+", too little", in.Quoting(outer, n+27), stays("pass icmp"))
			}
			for _, m := range others {
				add(m.name, m.between(f.inner, director).Quoting(outer, 1000), stays("pass icmp"))
			}
			tooBig := testenv.ICMP(f.inner, director, 3, 4).Quoting(outer, 1000)
			add("of no MTU", tooBig, stays("pass icmp"))
			add("of a ridiculous MTU", tooBig.Rest(uint32(n+67)), stays("pass icmp"))
			may := transports(at(f.client, 4003), at(vip, 80))[protocol]
			add("without DF", tooBig.Rest(1400).Quoting(w.put(byClient(may), 0).frame, 1000), stays("pass icmp"))
			padded := tooBig.Rest(1400).Quoting(outer, n+28)
			// The kernel forgets a sum when what pads the frame is cut off.
			w.judge(t, golden{in: sent{frame: append(padded.Frame(), "padding"...), fromServer: true},
				want: becomes(backward(testenv.ICMP(vip, f.client, 3, 4).Rest(uint32(1400-n)).TOS(0xc0).ID(0).Quoting(onward(p).Frame(), 28)).TTL(64))}, 0)
			unknown := append([]byte{}, outer...)
			unknown[14+n+15]++ // of the client's address
			add("unknown", tooBig.Rest(1400).Quoting(unknown, 1000), stays("pass icmp"))
			w.check(t, table) // while the connections last: half-open ones of SCTP, 3 s
			table = nil
		}
	}
}
