// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

const peerMAC = "02:00:00:00:09:09"

// linkAddress is a hardware address on the link of a device.
func linkAddress(device int, mac string) LinkAddress {
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		panic(err)
	}
	return LinkAddress{Index: device, MAC: hardware}
}

// newHanding makes a director of a pair: services of each forwarding method in both families.
func newHanding(t *testing.T) (*rig, *Failover) {
	r := newRig(t, small)
	for _, f := range families {
		r.serve(tcpService(at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
		r.serve(tcpService(at(f.vip(vipDirect), 80), "rr"), f.direct(2, 80))
		r.serve(tcpService(at(f.vip(vipTunnel), 80), "rr"), f.tunnelled()[0])
		r.serve(persistent(tcpService(at(f.vip(vipAll), 0), "rr")), f.real(3, 0))
		r.serve(service(model.UDP, at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
	}
	return r, r.failover()
}

// reaches is a frame as the director that it was handed to gets it: one hop further.
func reaches(t *testing.T, r result, p testenv.Packet) []byte {
	t.Helper()
	if diff := cmp.Diff(p.TTL(63).MACs(testenv.DirectorMAC, peerMAC).Frame(), r.frame); r.verdict != redirect || diff != "" {
		t.Fatalf("%v, want it handed over as it came (-want +got):\n%s", r.verdict, diff)
	}
	return slices.Concat(mustMAC(testenv.DirectorMAC), r.frame[6:])
}

func mustMAC(s string) []byte { return linkAddress(1, s).MAC }

// further is a packet that two directors sent on.
func further(p testenv.Packet) testenv.Packet { return onward(p).TTL(62) }

// After a planned move the new director hands packets of unknown connections to the former
// one, as they came, which sends them to the servers and to the clients.
func TestHandOver(t *testing.T) {
	t.Parallel()
	a, _ := newHanding(t)
	b, f := newHanding(t)
	onClients, onServers := linkAddress(b.client, peerMAC), linkAddress(b.server, peerMAC)
	until := in(time.Hour)
	b.must(f.Hand(onClients, until), f.Hand(onServers, until), f.Grace(until))
	for _, f := range families {
		client := at(f.client, 2000)
		for _, c := range []struct {
			name, server string
			vip          int
			becomes      func(testenv.Packet) outcome
		}{
			{"masquerading", at(f.server(0), 8080), vipMasq, func(p testenv.Packet) outcome { return becomes(further(p.To(at(f.server(0), 8080)))) }},
			{"every port", at(f.server(3), 80), vipAll, func(p testenv.Packet) outcome { return becomes(further(p.To(at(f.server(3), 80)))) }},
			{"direct routing", "", vipDirect, func(p testenv.Packet) outcome { return becomes(further(p)) }},
			{"tunnel", "", vipTunnel, func(p testenv.Packet) outcome {
				header := f.tunnelHeader(f.tunnelled()[0])
				header.DontFragment, header.TTL = false, 62 // as the packet
				return wrapped(further(p), header)
			}},
		} {
			t.Run(f.name+", "+c.name, func(t *testing.T) {
				vip := at(f.vip(c.vip), 80)
				syn := testenv.TCP(client, vip, "S")
				a.fromClient(syn)
				for _, flags := range []string{"A", "PA", "FA", "R"} {
					p := syn.Flags(flags).Payload("GET /")
					got := reaches(t, b.fromClient(p), p)
					if flags != "R" { // it ends the connection
						c.becomes(p).judge(t, got, a.send(a.progs.LbClient, skBuff{}, got))
					}
					if c.server != "" && flags != "R" {
						reply := p.Turned().From(c.server).Flags("A")
						got := reaches(t, b.fromServer(reply), reply)
						becomes(backward(reply.From(vip)).TTL(62)).judge(t, got, a.send(a.progs.LbServer, skBuff{}, got))
					}
				}
				// What opens a connection does so here.
				if got := b.fromClient(syn.From(at(f.client, 3000))); got.verdict != redirect || bytes.Equal(got.frame[:6], mustMAC(peerMAC)) {
					t.Errorf("a SYN: %v, to %x", got.verdict, got.frame[:6])
				}
			})
		}
		// A reply by UDP is of no connection here; what a client sends opens one.
		reply := testenv.UDP(at(f.server(0), 8080), client, "reply")
		reaches(t, b.fromServer(reply), reply)
		if got := b.fromClient(testenv.UDP(client, at(f.vip(vipMasq), 80), "question")); bytes.Equal(got.frame[:6], mustMAC(peerMAC)) {
			t.Error("a client's datagram was handed over")
		}
	}
}

// Directors that hand packets to each other in a circle, as three may, do so for as many hops
// as the packet has left.
func TestHandOverTakesAHop(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	r.must(f.Hand(linkAddress(r.client, peerMAC), in(time.Hour)))
	for _, f := range families {
		p := testenv.TCP(at(f.client, 2000), at(f.vip(vipMasq), 80), "A")
		becomes(p.TTL(1).MACs(testenv.DirectorMAC, peerMAC)).judge(t, nil, r.fromClient(p.TTL(2)))
		for _, ttl := range []uint8{0, 1} {
			reasons := r.reasonsOf(func() {
				if got := r.fromClient(p.TTL(ttl)); got.verdict != drop {
					t.Errorf("%s: TTL %d: %v", f.name, ttl, got.verdict)
				}
			})
			if reasons["drop takeover"] != 1 {
				t.Errorf("%s: TTL %d: %v", f.name, ttl, reasons)
			}
		}
	}
}

// A socket of this host that is bound to a port of all its addresses has what is for one of
// them, not a datagram that passes through.
func TestHandOverPastSockets(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	r.must(f.Hand(linkAddress(r.server, peerMAC), in(time.Hour)))
	r.must(r.ns.Do(func() error {
		all, err := net.ListenPacket("udp", ":2000")
		if err != nil {
			return err
		}
		r.Cleanup(func() { all.Close() })
		for _, f := range families {
			one, err := net.ListenPacket("udp", at(f.own().String(), 3000))
			if err != nil {
				return err
			}
			r.Cleanup(func() { one.Close() })
		}
		return nil
	}))
	for _, f := range families {
		from := at(f.server(0), 8080)
		reply := testenv.UDP(from, at(f.client, 2000), "reply")
		reaches(t, r.fromServer(reply), reply)
		for _, port := range []int{2000, 3000} {
			if got := r.fromServer(testenv.UDP(from, at(f.own().String(), port), "reply")); got.verdict != pass {
				t.Errorf("%s: to the socket at port %d: %v", f.name, port, got.verdict)
			}
		}
		own := testenv.UDP(from, at(f.own().String(), 4000), "reply")
		reaches(t, r.fromServer(own), own)
	}
}

// With sloppy_tcp and sloppy_sctp what does not open a connection is handed over, too.
func TestHandOverWithSloppy(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	r.must(r.Set(Setting{Name: "sloppy_tcp", Value: 1}, Setting{Name: "sloppy_sctp", Value: 1}))
	r.serve(service(model.SCTP, at(ipv4.vip(vipMasq), 80), "rr"), ipv4.real(0, 8080))
	for name, p := range map[string]testenv.Packet{
		"TCP":  testenv.TCP(client1, at(ipv4.vip(vipMasq), 80), "A"),
		"SCTP": testenv.SCTP(client1, at(ipv4.vip(vipMasq), 80), testenv.SCTPData),
	} {
		r.must(f.Hand(linkAddress(r.client, peerMAC), in(time.Hour)))
		reaches(t, r.fromClient(p), p)
		r.must(f.Hand(linkAddress(r.client, peerMAC), 0))
		if got := r.fromClient(p); got.verdict != redirect || bytes.Equal(got.frame[:6], mustMAC(peerMAC)) {
			t.Errorf("%s, no hand-over any more: %v", name, got.verdict)
		}
	}
}

// Devices that are gone leave nothing that takes the room of others.
func TestHandOverForgetsDevices(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	for i := range int(f.hands.MaxEntries()) {
		r.must(f.Hand(linkAddress(1000+i, peerMAC), in(-time.Second)))
	}
	r.must(f.Hand(linkAddress(r.client, peerMAC), in(time.Hour)))
	if n := r.entries(f.hands); n != 1 {
		t.Errorf("%d devices are noted", n)
	}
}

// The servers are read once for all that a takeover begins, and again once they have changed.
func TestServersAreNotedOnce(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	noted := func(when string, want ...string) {
		t.Helper()
		keys, err := mapKeys[bpfobj.LbAddress](f.repliesFrom)
		r.must(err)
		var got []string
		for _, key := range keys {
			got = append(got, fromAddress(key).String())
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	until := in(time.Hour)
	servers := []string{ipv4.server(3), ipv6.server(3)}
	r.must(f.Grace(until))
	noted("a grace period", servers...)
	r.must(deleteKeys(f.repliesFrom, func(bpfobj.LbAddress, uint32) bool { return true }))
	r.must(f.Hand(linkAddress(r.client, peerMAC), until), f.Grace(until))
	noted("of the same table")
	r.serve(persistent(tcpService(at(ipv4.vip(9), 0), "rr")), ipv4.real(1, 0))
	r.must(f.Hand(linkAddress(r.client, peerMAC), until))
	noted("of another one", ipv4.server(1), servers[0], servers[1])
	r.must(r.DeleteService(tcpService(at(ipv4.vip(9), 0), "rr").Key), f.Grace(until))
	noted("without a service", servers...)
}

// What is handed over, and until when; and what the other director sent back.
func TestHandOverEnds(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	packet := testenv.TCP(client1, at(ipv4.vip(vipMasq), 80), "A")
	reply := testenv.TCP(at(ipv4.server(0), 8080), client1, "A")
	handed := func(got result) bool {
		return got.verdict == redirect && bytes.Equal(got.frame[:6], mustMAC(peerMAC))
	}
	check := func(when string, clients, servers bool, else_ verdict) {
		t.Helper()
		for name, c := range map[string]struct {
			got  result
			want bool
		}{"client's": {r.fromClient(packet), clients}, "server's": {r.fromServer(reply), servers}} {
			if handed(c.got) != c.want || !c.want && c.got.verdict != else_ {
				t.Errorf("%s: a %s packet: %v, handed over: %t", when, name, c.got.verdict, handed(c.got))
			}
		}
	}
	onClients, onServers := linkAddress(r.client, peerMAC), linkAddress(r.server, peerMAC)
	check("before", false, false, pass)
	r.must(f.Hand(onClients, in(time.Hour)))
	reasons := r.reasonsOf(func() { check("one device", true, false, pass) })
	if reasons["handed takeover"] != 1 {
		t.Errorf("reasons %v", reasons)
	}
	r.must(f.Hand(onServers, in(time.Hour)))
	check("both", true, true, pass)
	r.must(f.Hand(onClients, 0))
	check("one ended", false, true, pass)
	r.must(f.Hand(onServers, in(-time.Second)), f.Grace(in(time.Hour)))
	check("over, in a grace period", false, false, drop)
	r.must(f.Grace(0), f.Hand(onClients, in(time.Hour)))
	if got := r.fromClient(packet.MACs(peerMAC, testenv.DirectorMAC)); got.verdict != pass {
		t.Errorf("what came from the peer: %v", got.verdict)
	}
	for name, p := range map[string]testenv.Packet{"to no service": packet.To("10.20.0.99:9"), "from no server": testenv.TCP("172.16.0.77:9", client1, "A")} {
		if got := r.fromClient(p); got.verdict != pass {
			t.Errorf("%s: %v", name, got.verdict)
		}
	}
	if f.Hand(LinkAddress{Index: r.client, MAC: net.HardwareAddr{1, 0, 0, 0, 0, 1}}, in(time.Hour)) == nil || f.Hand(linkAddress(0, peerMAC), in(time.Hour)) == nil {
		t.Error("a group's address, or no device")
	}
	// A question about a connection that is not known says so.
	r.must(f.Grace(in(time.Hour)))
	var why Explanation
	r.must(r.ns.Do(func() (err error) {
		why, err = r.Explain(Question{Client: netip.MustParseAddrPort("10.10.0.9:9"), Virtual: netip.MustParseAddrPort(at(ipv4.vip(vipMasq), 80)), Protocol: model.TCP})
		return err
	}))
	if g, h := time.Duration(why.Grace), time.Duration(why.Handed); g <= 50*time.Minute || g > time.Hour || h <= 50*time.Minute || h > time.Hour {
		t.Errorf("grace %v, handed over for %v", g, h)
	}
	r.must(f.Release())
	check("released", false, false, pass)
}

// What another director sent to this host as to a server is not scheduled again.
func TestPeers(t *testing.T) {
	t.Parallel()
	r, f := newHanding(t)
	syn := testenv.TCP(client1, at(ipv4.vip(vipDirect), 80), "S")
	sent := syn.MACs(peerMAC, testenv.DirectorMAC)
	r.must(f.Peers(linkAddress(r.client, peerMAC)))
	reasons := r.reasonsOf(func() {
		if got := r.fromClient(sent); got.verdict != pass {
			t.Errorf("a peer's SYN: %v", got.verdict)
		}
	})
	if reasons["pass from peer"] != 1 {
		t.Errorf("reasons %v", reasons)
	}
	if got := r.fromClient(sent.To("10.20.0.99:80")); got.verdict != pass {
		t.Errorf("a peer's packet to no service: %v", got.verdict)
	}
	// On another device it is another host; and connections that are known go on.
	r.must(f.Peers(linkAddress(r.server, peerMAC)))
	if got := r.fromClient(sent); got.verdict != redirect {
		t.Errorf("on another device: %v", got.verdict)
	}
	r.must(f.Peers(linkAddress(r.client, peerMAC)))
	if got := r.fromClient(sent.Flags("A")); got.verdict != redirect {
		t.Errorf("of a known connection: %v", got.verdict)
	}
	r.must(f.Peers())
	if got := r.fromClient(sent.From("10.10.0.3:9")); got.verdict != redirect {
		t.Errorf("no peers any more: %v", got.verdict)
	}
}
