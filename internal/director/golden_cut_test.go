// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"imbang/internal/testenv"
)

// outgoing are the IPv4 frames that have left by the device since it was asked
// last.
func (w wire) outgoing() (frames [][]byte) {
	w.Helper()
	b := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(w.fd, b, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return frames
		}
		w.must(err)
		if l := from.(*unix.SockaddrLinklayer); l.Pkttype == unix.PACKET_OUTGOING && b[12] == 8 && b[13] == 0 {
			frames = append(frames, bytes.Clone(b[:n]))
		}
	}
}

// cuts plays packets that are to be cut, one after the other.
type cuts struct {
	*rig
	client, server wire
}

// newCuts keeps the far ends of the links from forwarding: they are in the
// director's namespace, and would send the pieces back to it.
func newCuts(w *rig) cuts {
	for _, dev := range []string{clientDev, serverDev} {
		w.must(w.ns.Sysctl("net.ipv4.conf."+dev+"p.forwarding", "0"))
	}
	return cuts{w, w.wire(clientDev), w.wire(serverDev)}
}

// pieces sends a packet and returns what it became: the last piece is what is
// redirected, the others have left before.
func (c cuts) pieces(s sent) [][]byte {
	c.Helper()
	c.client.outgoing()
	c.server.outgoing()
	var got result
	reasons := c.reasonsOf(func() { got = c.put(s, 0) })
	if got.verdict != redirect || len(reasons) != 0 {
		c.Fatalf("%s, %v; want redirect", got.verdict, reasons)
	}
	return append(append(c.client.outgoing(), c.server.outgoing()...), got.frame)
}

// A packet that may be fragmented and is too big becomes the fragments of what
// it would have become.
func goldenCut(t *testing.T, w *rig) {
	c, f := newCuts(w), ipv4
	check := func(name string, s sent, want testenv.Packet, setup ...sent) {
		t.Run(name, func(t *testing.T) {
			c := cuts{c.in(t), c.client, c.server}
			for _, s := range setup {
				c.put(s, 0)
			}
			if diff := cmp.Diff(testenv.Cut(want.Frame(), 1500), c.pieces(s)); diff != "" {
				t.Errorf("pieces (-want +got):\n%s", diff)
			}
		})
	}
	for protocol, p := range transports(at(f.client, 5000), at(f.vip(vipMasq), 80)) {
		server := at(f.server(0), 8080)
		for _, n := range []int{1501, 1502, 1507, 1508, 2980, 2981, 3400} {
			p := sized(p, n)
			check(fmt.Sprintf("%s of %d", protocol, n), byClient(p), onward(p.To(server)))
			answer := sized(p.Turned().From(server).Flags("A"), n)
			check(fmt.Sprintf("%s of %d, back", protocol, n), byServer(answer), backward(answer.From(at(f.vip(vipMasq), 80))), byClient(p))
			direct := p.To(at(f.vip(vipDirect), 80))
			check(fmt.Sprintf("%s of %d, direct routing", protocol, n), byClient(direct), onward(direct))
		}
		for words := 1; words <= 10; words++ {
			p := sized(p.Options(words), 3000)
			check(fmt.Sprintf("%s, %d words of options", protocol, words), byClient(p), onward(p.To(server)))
		}
		check(protocol+", class", byClient(sized(p.TOS(0xb8), 2000)), onward(sized(p.TOS(0xb8), 2000).To(server)))
	}
	plain := sized(testenv.UDP(at(f.client, 5001), at(f.vip(vipMasq), 80), "").NoChecksum(), 2000)
	check("no checksum", byClient(plain), onward(plain.To(at(f.server(0), 8080))))
	once := sized(testenv.UDP(at(f.client, 5001), at(f.vip(vipOnePacket), 80), ""), 2000)
	check("one packet", byClient(once), onward(once.To(at(f.server(4), 8080))))

	question := testenv.UDP(at(f.client, 5002), at(f.vip(vipMasq), 80), "")
	about := sized(onward(question.To(at(f.server(0), 8080))), 1600)
	report := testenv.ICMP(f.inner, f.client, 3, 1)
	check("ICMP error", byServer(report.Quoting(about.Frame(), 1600)),
		backward(testenv.ICMP(f.vip(vipMasq), f.client, 3, 1).Quoting(sized(question.TTL(63), 1600).Frame(), 1600)), byClient(question))
}

// A fragment that is too big becomes smaller ones of the same packet.
func goldenCutFragments(t *testing.T, w *rig) {
	c, f := newCuts(w), ipv4
	for protocol, p := range transports(at(f.client, 5003), at(f.vip(vipSamePort), 80)) {
		p = sized(p, 4000).ID(0x4321)
		want := onward(p.To(at(f.server(1), 80))).Fragments(1600)
		for i, frame := range p.Fragments(1600) {
			if diff := cmp.Diff(testenv.Cut(want[i], 1500), c.pieces(sent{frame: frame})); diff != "" {
				t.Errorf("%s, piece %d (-want +got):\n%s", protocol, i, diff)
			}
		}
	}
}

// Of a packet in a tunnel the outer one is cut. IPv6 outside, it is not.
func goldenCutTunnels(t *testing.T, w *rig) {
	c, f := newCuts(w), ipv4
	for i, s := range f.tunnelled() {
		header := f.tunnelHeader(s)
		header.DontFragment = false
		for protocol, p := range transports(at(f.client, 5004), at(f.vip(vipTunnel+i), 80)) {
			for _, n := range []int{1500 - overhead(s) + 1, 1500, 1600, 3000} {
				t.Run(fmt.Sprintf("%s of %d, %s %d to %s", protocol, n, header.Kind, s.TunnelFlags, s.Addr), func(t *testing.T) {
					c := cuts{c.in(t), c.client, c.server}
					p := sized(p, n)
					if s.Addr.Is6() {
						c.judge(t, golden{in: byClient(p), want: stays("drop too big no df")}, 0)
						return
					}
					got := c.pieces(byClient(p))
					whole, err := testenv.Joined(got)
					c.must(err)
					if diff := cmp.Diff(testenv.Cut(whole, 1500), got); diff != "" {
						t.Errorf("pieces (-want +got):\n%s", diff)
					}
					wrapped(onward(p), header).judge(t, nil, result{redirect, whole})
				})
			}
		}
	}
}

// What cannot be cut, and what is lost until the neighbour is known.
func goldenNotCut(t *testing.T, w *rig) {
	c, f := newCuts(w), ipv4
	p := sized(testenv.UDP(at(f.client, 5005), at(f.vip(vipMasq), 80), ""), 3000)
	for name, g := range map[string]golden{
		"super-packet": {in: sent{frame: p.Frame(), context: skBuff{GSOSize: 1500, GSOSegs: 2}}, want: stays("drop too big no df")},
		"DF":           {in: byClient(p.DontFragment()), want: refused("too big", f.refusals().tooBig)},
	} {
		t.Run(name, func(t *testing.T) { c.in(t).judge(t, g, 0) })
	}
	crc := sized(testenv.SCTP(at(f.client, 5005), at(f.vip(vipMasq), 80), testenv.SCTPInit), 3000).Frame()
	clear(crc[14+20+8:][:4])
	reasons := c.reasonsOf(func() { c.put(sent{frame: crc}, 0) })
	if diff := cmp.Diff(map[string]uint64{"drop too big no df": 1}, reasons); diff != "" {
		t.Errorf("SCTP whose checksum is still to be made: %s", diff)
	}
	if left := c.server.outgoing(); len(left) != 0 {
		t.Errorf("%d pieces were sent", len(left))
	}
}

// One piece goes, so that the kernel asks for the neighbour.
func TestCutForUnknownNeighbour(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	unknown := realServer(200-10, 1)
	r.must(r.AddService(s), r.AddServer(s.Key, unknown))
	p := sized(testenv.TCP(client1, vip, "S"), 3400)
	tap := r.wire(serverDev)
	var got result
	reasons := r.reasonsOf(func() { got = r.fromClient(p) })
	if diff := cmp.Diff(map[string]uint64{"drop no neighbour": 1}, reasons); diff != "" || got.verdict != redirect {
		t.Errorf("%s: %s", got.verdict, diff)
	}
	want := p.To(at(unknown.Addr.String(), 8080)).TTL(63).Fragments(1480)
	if diff := cmp.Diff(want[len(want)-1], got.frame); diff != "" {
		t.Errorf("the piece (-want +got):\n%s", diff)
	}
	if sent := tap.outgoing(); len(sent) != 0 {
		t.Errorf("%d pieces were sent without an address", len(sent))
	}
}

// A hairpin's packets are cut as well, both ways.
func TestCutHairpin(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.must(r.AddService(s), r.ns.Do(func() error { return r.AddServer(s.Key, realServer(0, 1)) }))
	r.turn("hairpin=1")
	const client = "172.16.0.11:40000"
	c := newCuts(r)
	syn, _, err := testenv.Ends(r.fromServer(testenv.TCP(client, vip, "S")).frame)
	r.must(err)
	p := testenv.TCP(client, vip, "A").Payload(strings.Repeat("question", 300))
	want := p.From(syn.String()).To(server0).TTL(63).MACs(serverDevMAC, serverMAC)
	if diff := cmp.Diff(want.Fragments(1480), c.pieces(byServer(p))); diff != "" {
		t.Errorf("to the server (-want +got):\n%s", diff)
	}
	back := testenv.TCP(server0, syn.String(), "A").Payload(strings.Repeat("answer", 300))
	want = back.From(vip).To(client).TTL(63).MACs(serverDevMAC, serverMAC)
	if diff := cmp.Diff(want.Fragments(1480), c.pieces(byServer(back))); diff != "" {
		t.Errorf("to the client (-want +got):\n%s", diff)
	}
}
