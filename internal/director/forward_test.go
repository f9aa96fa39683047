// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

const (
	server0 = "172.16.0.10:8080" // realServer(0, ...)
	farVIP  = "10.20.0.2:53"
)

// A packet that is forwarded comes out as another packet; every byte counts.
func TestForward(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(service(model.UDP, farVIP, "rr"), 1)
	// A server without a port, behind a service of all ports, is asked at
	// the port that the client chose.
	every := persistent(tcpService("10.20.0.3:0", "rr"))
	r.must(r.AddService(every), r.AddServer(every.Key, model.Server{Addr: serverAddr(1), Weight: 1}))

	in := func(p testenv.Packet, server string) testenv.Packet {
		return p.To(server).TTL(63).MACs(serverDevMAC, serverMAC)
	}
	out := func(p testenv.Packet, vip string) testenv.Packet {
		return p.From(vip).TTL(63).MACs(clientDevMAC, routerMAC)
	}
	tcp, udp := testenv.TCP(client1, vip, "S"), testenv.UDP(client1, farVIP, "question")
	back, answer := testenv.TCP(server0, client1, "SA"), testenv.UDP(server0, client1, "answer")
	for _, c := range []struct {
		name       string
		server     bool // from the servers' side
		packet, to testenv.Packet
	}{
		{"SYN", false, tcp, in(tcp, server0)},
		{"SYN again", false, tcp, in(tcp, server0)},
		{"SYN-ACK", true, back, out(back, vip)},
		{"ACK", false, tcp.Flags("A"), in(tcp.Flags("A"), server0)},
		{"data", false, tcp.Flags("PA").Payload("GET /"), in(tcp.Flags("PA").Payload("GET /"), server0)},
		{"data with IP options", false, tcp.Flags("A").Options(10).Payload("x"), in(tcp.Flags("A").Options(10).Payload("x"), server0)},
		{"answer with IP options", true, back.Flags("A").Options(3).Payload("y"), out(back.Flags("A").Options(3).Payload("y"), vip)},
		{"lowest TTL", false, tcp.Flags("A").TTL(2), in(tcp.Flags("A"), server0).TTL(1)},
		{"highest TTL", true, back.Flags("A").TTL(255), out(back.Flags("A"), vip).TTL(254)},
		{"SYN with IP options", false, tcp.From("10.10.0.3:9").Options(1), in(tcp.From("10.10.0.3:9").Options(1), server0)},
		{"SYN with ACK", false, tcp.From("10.10.0.4:9").Flags("SA"), in(tcp.From("10.10.0.4:9").Flags("SA"), server0)},
		{"port of the client's choice", false, tcp.To("10.20.0.3:443"), in(tcp, "172.16.0.11:443")},
		{"and back", true, back.From("172.16.0.11:443"), out(back, "10.20.0.3:443")},
		{"UDP", false, udp, in(udp, server0)},
		{"UDP answer", true, answer, out(answer, farVIP)},
		{"UDP, no checksum", false, udp.NoChecksum(), in(udp.NoChecksum(), server0)},
		{"UDP answer, no checksum", true, answer.NoChecksum(), out(answer.NoChecksum(), farVIP)},
		{"UDP of no data", false, udp.Payload(""), in(udp.Payload(""), server0)},
		{"UDP with IP options", false, udp.Options(2), in(udp.Options(2), server0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			send := r.fromClient
			if c.server {
				send = r.fromServer
			}
			wantForwarded(t, send(c.packet), c.to)
		})
	}
	if got := r.reasonsOf(func() {}); len(got) != 0 {
		t.Errorf("reasons: %v", got)
	}
}

func wantForwarded(t *testing.T, got result, want testenv.Packet) {
	t.Helper()
	if got.verdict != redirect {
		t.Fatalf("%s, want redirect", got.verdict)
	}
	if err := testenv.CheckSums(got.frame); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want.Frame(), got.frame); diff != "" {
		t.Errorf("the packet differs (-want +got):\n%s", diff)
	}
}

// A datagram whose checksum comes out as zero carries its complement: zero
// would mean that there is none (RFC 768).
func TestUDPChecksumOfZero(t *testing.T) {
	r := newRig(t, small)
	r.addService(service(model.UDP, farVIP, "rr"), 1)
	p := testenv.UDP(client1, farVIP, "\x00\x00")
	plain := p.To(server0).TTL(63).MACs(serverDevMAC, serverMAC).Frame()
	sum := plain[14+20+6 : 14+20+8]
	p = p.Payload(string(sum)) // the rest of the datagram sums up to its complement
	got := r.fromClient(p)
	wantForwarded(t, got, p.To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
	if sum := got.frame[14+20+6 : 14+20+8]; !bytes.Equal(sum, []byte{0xff, 0xff}) {
		t.Errorf("the checksum is %x, want ffff", sum)
	}
}

// Both programs find either half of a connection: one device may be both.
func TestOneDeviceForBothSides(t *testing.T) {
	for _, name := range []string{"lb_client", "lb_server"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small)
			r.addService(tcpService(vip, "rr"), 1)
			client := r.fromServer
			if name == "lb_client" {
				r.onOneDevice()
				client = r.fromClient
			}
			p, back := testenv.TCP(client1, vip, "S"), testenv.TCP(server0, client1, "SA")
			wantForwarded(t, client(p), p.To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
			wantForwarded(t, r.fromServer(back), back.From(vip).TTL(63).MACs(clientDevMAC, routerMAC))
		})
	}
}

// A frame may be padded behind the packet (Ethernet's shortest is 60 bytes):
// that is no data, and does not count as bytes.
func TestPaddedFrame(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.syn(client1, vip)
	p := testenv.TCP(client1, vip, "A")
	frame := append(p.Frame(), make([]byte, 6)...)
	got := r.send(r.progs.LbClient, skBuff{}, frame)
	if len(got.frame) != len(frame) {
		t.Fatalf("%d bytes came out, want %d", len(got.frame), len(frame))
	}
	got.frame = got.frame[:len(frame)-6]
	wantForwarded(t, got, p.To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
	if n := r.status(s.Key).Stats.InBytes; n != 44+40 {
		t.Errorf("a SYN of 44 bytes and an ACK of 40 are %d bytes", n)
	}
}

// The kernel resolves a neighbour that the table does not know: the packet is
// redirected before it has hardware addresses.
func TestUnknownNeighbour(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: netip.MustParseAddr("172.16.0.200"), Port: 8080, Weight: 1}))
	p := testenv.TCP(client1, vip, "S")
	wantForwarded(t, r.fromClient(p), p.To("172.16.0.200:8080").TTL(63))
}

// What the routing table says of a server's address.
func TestNoRouteToServer(t *testing.T) {
	for _, c := range []struct {
		name, server string
		prepare      func(*rig)
		reason       string
	}{
		{"no route", "198.51.100.1", nil, "refused no route"},
		{"an address of the director", "172.16.0.1", nil, "refused no route"},
		{"forwarding is off", "172.16.0.10", func(r *rig) {
			r.must(r.ns.Sysctl("net.ipv4.ip_forward", "0"))
		}, "drop forwarding off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, small)
			s := tcpService(vip, "rr")
			r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: netip.MustParseAddr(c.server), Port: 8080, Weight: 1}))
			if c.prepare != nil {
				c.prepare(r)
			}
			p := testenv.TCP(client1, vip, "S")
			got := r.reasonsOf(func() {
				if strings.HasPrefix(c.reason, "refused") {
					said, err := testenv.Refused(p.Frame(), r.fromClient(p).frame)
					if want := ipv4.refusals().host; err != nil || said != want {
						t.Errorf("%+v, %v; want %+v", said, err, want)
					}
					return
				}
				wantUntouched(t, drop, r.fromClient(p), p.Frame())
			})
			if diff := cmp.Diff(map[string]uint64{c.reason: 1}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A firewall mark comes with the packet, or from a rule for its destination.
func TestMarks(t *testing.T) {
	r := newRig(t, small)
	marked := model.Service{Key: model.MarkKey(7, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}
	r.addService(marked, 1)
	r.must(r.Mark(MarkRule{netip.MustParsePrefix("10.30.0.0/24"), 7}),
		r.Mark(MarkRule{netip.MustParsePrefix("10.30.0.9/32"), 9}))
	for _, c := range []struct {
		name, vip string
		mark      uint32
		want      verdict
	}{
		{"by rule", "10.30.0.1:1", 0, redirect},
		{"outside the rule", "10.30.1.1:1", 0, pass},
		{"the longer prefix wins", "10.30.0.9:1", 0, pass},
		{"brought along", "10.30.1.1:2", 7, redirect},
		{"another one brought along", "10.30.0.1:2", 8, pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testenv.TCP(client1, c.vip, "S")
			if got := r.send(r.progs.LbClient, skBuff{Mark: c.mark}, p.Frame()); got.verdict != c.want {
				t.Errorf("%s, want %s", got.verdict, c.want)
			}
		})
	}
	r.must(r.Mark(MarkRule{Prefix: netip.MustParsePrefix("10.30.0.0/24")}))
	if got := r.fromClient(testenv.TCP(client1, "10.30.0.2:1", "S")); got.verdict != pass {
		t.Errorf("the rule is gone: %s, want pass", got.verdict)
	}
	if err := r.Mark(MarkRule{Prefix: netip.MustParsePrefix("10.30.0.0/24")}); err == nil {
		t.Error("a rule that is not there was removed")
	}
}

// The mark comes before the address, the exact port before every port.
func TestServiceOrder(t *testing.T) {
	r := newRig(t, small)
	for i, s := range []model.Service{
		persistent(tcpService("10.20.0.1:0", "rr")), tcpService(vip, "rr"),
		{Key: model.MarkKey(7, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)},
	} {
		r.must(r.AddService(s), r.AddServer(s.Key, realServer(i, 1)))
	}
	for _, c := range []struct {
		vip  string
		mark uint32
		want string
	}{
		{vip, 7, "C"}, {vip, 0, "B"}, {"10.20.0.1:81", 0, "A"}, {vip, 1, "B"},
	} {
		p := testenv.TCP(client1, c.vip, "S")
		to, err := r.send(r.progs.LbClient, skBuff{Mark: c.mark}, p.Frame()).server()
		r.must(err)
		if got := names([]netip.AddrPort{to}); got != c.want {
			t.Errorf("%s with mark %d goes to %s, want %s", c.vip, c.mark, got, c.want)
		}
		e := r.entryOf(fromFlow4(flowOf(p)))
		r.must(r.removeConn(&e))
	}
}

// routeLifetime is ROUTE_LIFETIME of bpf/route.h, and what the coarse clock may lag
// while the CPU that keeps it is not run.
const routeLifetime = 8*time.Millisecond + 100*time.Millisecond

// The route is the routing table's, whatever the devices of the programs; a
// change there is obeyed as soon as cached routes have expired.
func TestRouteChangesMidway(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.syn(client1, vip)
	gate := netip.MustParseAddr("10.9.0.2")
	r.must(r.ns.AddRoutes(host.Route{Dst: netip.PrefixFrom(serverAddr(0), 32), Via: gate}))
	time.Sleep(routeLifetime)
	p := testenv.TCP(client1, vip, "A")
	wantForwarded(t, r.fromClient(p), p.To(server0).TTL(63).MACs(clientDevMAC, routerMAC))
}

// persistent makes a service keep its clients for a minute.
func persistent(s model.Service) model.Service {
	s.Flags |= model.Persistent
	s.Timeout, s.Netmask = time.Minute, model.FullMask(s.Key.Family)
	return s
}
