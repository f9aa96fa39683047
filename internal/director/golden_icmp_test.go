// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// message is an ICMP message without ends.
type message struct {
	name       string
	kind, code uint8
	rest       uint32
}

func (m message) between(src, dst string) testenv.Packet {
	return testenv.ICMP(src, dst, m.kind, m.code).Rest(m.rest)
}

// errors are those that are translated, others those that are not: the stack
// has to look at them (icmp_unreach and others of ip_vs_in_icmp).
func (f family) messages() (errors, others []message) {
	if f.number == ipv4.number {
		return []message{
				{"unreachable", 3, 1, 0}, {"port unreachable", 3, 3, 0}, {"fragmentation needed", 3, 4, 1400},
				{"source quench", 4, 0, 0}, {"time exceeded", 11, 0, 0},
			}, []message{
				{"redirect", 5, 1, 0x0a090003}, {"parameter problem", 12, 0, 0}, {"echo", 8, 0, 1}, {"echo reply", 0, 0, 1},
			}
	}
	return []message{
			{"unreachable", 1, 0, 0}, {"port unreachable", 1, 4, 0}, {"too big", 2, 0, 1400},
			{"time exceeded", 3, 0, 0}, {"parameter problem", 4, 1, 40},
		}, []message{
			{"redirect", 137, 0, 0}, {"neighbour solicitation", 135, 0, 0}, {"echo", 128, 0, 1}, {"echo reply", 129, 0, 1},
		}
}

// exchange is a connection's packets as they come in and go out.
type exchange struct {
	name             string
	packet, onward   testenv.Packet // from the client
	answer, backward testenv.Packet
	vip, server      string
}

// exchanges are connections of each protocol with a masqueraded server, by
// way of another port and the same.
func (f family) exchanges() (all []exchange) {
	for _, s := range []struct {
		name           string
		vip, n, server int
	}{{"other port", vipMasq, 0, 8080}, {"same port", vipSamePort, 1, 80}} {
		vip, server := at(f.vip(s.vip), 80), at(f.server(s.n), s.server)
		for protocol, p := range transports(at(f.client, 2000), vip) {
			answer := p.Turned().From(server).Flags("SA").Payload("the answer")
			all = append(all, exchange{
				name: protocol + ", " + s.name, packet: p, onward: onward(p.To(server)),
				answer: answer, backward: backward(answer.From(vip)), vip: f.vip(s.vip), server: f.server(s.n),
			})
		}
	}
	return all
}

// Errors about a packet on its way to the server go on to its sender, as if
// they were about the packet that the client sent. Their source is the virtual
// address, not the host that reports the error.
func goldenICMPToClient(t *testing.T, w *rig) {
	for _, f := range families {
		translated, _ := f.messages()
		var table []golden
		for _, x := range f.exchanges() {
			for _, m := range translated {
				add := func(name string, about, becoming testenv.Packet, quote int, from string) {
					in := m.between(from, f.client).Quoting(about.Frame(), quote)
					out := m.between(x.vip, f.client).Quoting(becoming.Frame(), quote)
					table = append(table, golden{x.name + ", " + m.name + ", " + name, []sent{byClient(x.packet)}, byServer(in), becomes(backward(out))})
				}
				f.eachQuote(x.onward, x.packet.TTL(63), func(name string, about, becoming testenv.Packet, quote int) {
					add(name, about, becoming, quote, x.server)
				})
				add("by a router", x.onward, x.packet.TTL(63), 1000, f.inner)
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// Errors about an answer on its way to the client go on to the server. Their
// source stays the host that reports the error.
func goldenICMPToServer(t *testing.T, w *rig) {
	for _, f := range families {
		translated, _ := f.messages()
		var table []golden
		for _, x := range f.exchanges() {
			for _, m := range translated {
				add := func(name string, about, becoming testenv.Packet, quote int, from string) {
					in := m.between(from, x.vip).Quoting(about.Frame(), quote)
					out := m.between(from, x.server).Quoting(becoming.Frame(), quote)
					table = append(table, golden{x.name + ", " + m.name + ", " + name, []sent{byClient(x.packet), byServer(x.answer)}, byClient(in), becomes(onward(out))})
				}
				f.eachQuote(x.backward, x.answer.TTL(63), func(name string, about, becoming testenv.Packet, quote int) {
					add(name, about, becoming, quote, f.client)
				})
				add("by a router", x.backward, x.answer.TTL(63), 1000, f.router)
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// eachQuote calls with packets as an error may quote them, before and after
// translation, and how much is quoted.
func (f family) eachQuote(about, becoming testenv.Packet, call func(name string, about, becoming testenv.Packet, quote int)) {
	for _, n := range []int{8, 12, 13, 28} {
		call(fmt.Sprintf("%d bytes behind the header", n), about, becoming, f.header+n)
	}
	long, longer := sized(about, 1400), sized(becoming, 1400)
	call("all of it", sized(about, 101), sized(becoming, 101), 1500)
	call("most of it", long, longer, f.refusals().quote)
	call("no checksum", about.NoChecksum(), becoming.NoChecksum(), f.header+8)
	if f.number == ipv4.number {
		call("options", about.Options(10), becoming.Options(10), 68)
		call("first fragment", about.Fragment(0x2000), becoming.Fragment(0x2000), 28)
		return
	}
	call("extension headers", about.Extension(testenv.HopByHop).Extension(testenv.Destination),
		becoming.Extension(testenv.HopByHop).Extension(testenv.Destination), 64)
	call("atomic fragment", about.Fragment(0), becoming.Fragment(0), 1000)
}

// What is about no connection, or no error, is left to the stack.
func goldenICMPPasses(t *testing.T, w *rig) {
	for _, f := range families {
		translated, others := f.messages()
		x := f.exchanges()[0]
		w.put(byClient(x.packet), 0)
		unknown := map[string]testenv.Packet{
			"another client's port": x.answer.From(at(x.vip, 80)).To(at(f.client, 9)),
			"another service":       x.answer.From(at(x.vip, 81)),
			"the wrong way round":   x.packet,
			"ping":                  testenv.Ping(x.vip, f.client),
		}
		var table []golden
		add := func(name string, p testenv.Packet, reason string) {
			table = append(table,
				golden{name: name, in: byClient(p), want: stays(reason)},
				golden{name: name + ", servers' side", in: byServer(p), want: stays(reason)})
		}
		for _, m := range translated {
			for name, about := range unknown {
				add(m.name+" about "+name, m.between(f.client, x.vip).Quoting(about.Frame(), 1000), "pass icmp")
			}
			right := m.between(f.client, x.vip)
			add(m.name+" about nothing", right, "pass icmp")
			add(m.name+" of too few bytes", right.Quoting(x.backward.Frame(), f.header+3), "pass icmp")
			add(m.name+" in a fragment", right.Quoting(x.backward.Frame(), 1000).Fragment(0x2000), "pass fragment")
			later := x.backward.Fragment(0x0001)
			add(m.name+" about a later fragment", right.Quoting(later.Frame(), 1000), "pass icmp")
		}
		for _, m := range others {
			add(m.name, m.between(f.client, x.vip).Quoting(x.backward.Frame(), 1000), "pass icmp")
		}
		add("ping", testenv.Ping(f.client, x.vip), "pass icmp")
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// Errors about what a server of direct routing answered go on to it as they
// are.
func goldenICMPDirect(t *testing.T, w *rig) {
	for _, f := range families {
		translated, _ := f.messages()
		var table []golden
		vip := at(f.vip(vipDirect), 80)
		for protocol, p := range transports(at(f.client, 2000), vip) {
			for _, m := range translated {
				in := m.between(f.router, f.vip(vipDirect)).Quoting(p.Turned().Frame(), 1000)
				table = append(table, golden{protocol + ", " + m.name, []sent{byClient(p)}, byClient(in), becomes(onward(in))},
					golden{protocol + ", " + m.name + ", TTL 1", []sent{byClient(p)}, byClient(in.TTL(1)), stays("refused ttl exceeded")})
			}
		}
		t.Run(f.name, func(t *testing.T) { w.check(t, table) })
	}
}

// A quoted UDP checksum that comes out as zero carries its complement, as one
// that is no quote does.
func goldenQuotedUDPChecksumOfZero(t *testing.T, w *rig) {
	for _, f := range families {
		p := testenv.UDP(at(f.client, 2000), at(f.vip(vipMasq), 80), "\x00\x00")
		sum := p.Frame()[14+f.header+6:][:2]
		p = p.Payload(string(sum)) // now the datagram sums up to zero
		m, _ := f.messages()
		server := at(f.server(0), 8080)
		in := m[0].between(f.server(0), f.client).Quoting(onward(p.To(server)).TTL(64).Frame(), 1000)
		out := m[0].between(f.vip(vipMasq), f.client).Quoting(p.Frame(), 1000)
		w.check(t, []golden{{f.name, []sent{byClient(p)}, byServer(in), becomes(backward(out))}})
	}
}

// The ICMP of the other family is an unknown protocol.
func goldenICMPOfTheOtherFamily(t *testing.T, w *rig) {
	for _, f := range families {
		x, other := f.exchanges()[0], f.other()
		messages, _ := other.messages()
		p := messages[0].between(f.client, x.vip).Quoting(x.backward.Frame(), 1000)
		w.check(t, []golden{{f.name, []sent{byClient(x.packet), byServer(x.answer)},
			sent{frame: f.renumbered(p.Frame(), other.icmp)}, stays("pass protocol")}})
	}
}

// renumbered is a frame that says that something else is behind its IP header.
func (f family) renumbered(frame []byte, protocol uint8) []byte {
	ip := frame[14:]
	if f.number == ipv6.number {
		ip[6] = protocol
		return frame
	}
	ip[9] = protocol
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], testenv.Sum(ip[:20]))
	return frame
}

// What pads a short frame is not quoted by the error in it.
func goldenPaddedICMP(t *testing.T, w *rig) {
	for _, f := range families {
		x := f.exchanges()[0]
		m, _ := f.messages()
		p := m[0].between(f.client, x.vip)
		padded := p.Quoting(x.backward.Frame(), f.header+3).Frame()
		padded = append(padded, x.backward.Frame()[14+f.header+3:]...)
		w.check(t, []golden{{f.name, []sent{byClient(x.packet), byServer(x.answer)}, sent{frame: padded}, stays("pass icmp")}})
	}
}

// Errors about connections of a server that was deleted go on, but do not
// count for it, as in Linux.
func goldenICMPOfDeletedServer(t *testing.T, w *rig) {
	for _, f := range families {
		key := service(model.UDP, at(f.vip(vipMasq), 80), "rr").Key
		p := testenv.UDP(at(f.client, 2000), at(f.vip(vipMasq), 80), "question")
		answer := p.Turned().From(at(f.server(0), 8080))
		w.put(byClient(p), 0)
		before := w.status(key).Servers[0].Stats
		w.must(w.DeleteServer(key, f.real(0, 8080).AddrPort()))
		m, _ := f.messages()
		in := m[0].between(f.client, f.vip(vipMasq)).Quoting(backward(answer.From(at(f.vip(vipMasq), 80))).Frame(), 1000)
		out := m[0].between(f.client, f.server(0)).Quoting(answer.TTL(63).Frame(), 1000)
		w.check(t, []golden{{f.name, nil, byClient(in), becomes(onward(out))}})
		w.must(w.AddServer(key, f.real(0, 8080)))
		if got := w.status(key).Servers[0].Stats; got != before {
			t.Errorf("%s: counted %+v, before %+v", f.name, got, before)
		}
	}
}
