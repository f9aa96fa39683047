// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The settings that Linux has not: what they change, and that without them all
// is as on Linux.

// turn changes settings, written as the command takes them.
func (r *rig) turn(settings ...string) {
	r.Helper()
	for _, text := range settings {
		s, err := ParseSetting(text)
		r.must(err, r.ns.Do(func() error { return r.Set(s) }))
	}
}

// A hash table's client whose server can take no connection goes on to one
// that can, always the same; the others stay where they were.
func TestHashFallback(t *testing.T) {
	for _, scheduler := range []string{"sh", "mh", "dh"} {
		t.Run(scheduler, func(t *testing.T) {
			r := newRig(t, small)
			const clients = 64
			var vips []string
			for i := range clients {
				vips = append(vips, vip)
				if scheduler == "dh" { // hashes where clients go to
					vips[i] = nthVIP(i)
				}
			}
			for i, at := range vips {
				if i == 0 || at != vips[0] {
					s := tcpService(at, scheduler)
					r.addService(s, 1, 1, 1)
				}
			}
			port := 1000
			// who answers each client, by a letter; - refuses.
			who := func() (all string) {
				port++
				for i, at := range vips {
					got := r.fromClient(testenv.TCP(fmt.Sprintf("10.10.3.%d:%d", i, port), at, "S"))
					if to, err := got.server(); err == nil && to.Port() == 8080 {
						all += string('A' + to.Addr().As4()[3] - 10)
					} else {
						all += "-"
					}
				}
				return all
			}
			before := who()
			for i, at := range vips {
				if i == 0 || at != vips[0] {
					r.must(r.EditServer(tcpService(at, scheduler).Key, realServer(1, 0)))
				}
			}
			linux := who()
			r.turn("hash_fallback=1")
			remedied := who()
			moved := map[byte]int{}
			for i := range before {
				switch {
				case before[i] != 'B' && (linux[i] != before[i] || remedied[i] != before[i]):
					t.Errorf("client %d moved from %c to %c, with fallback %c", i, before[i], linux[i], remedied[i])
				case before[i] == 'B' && (linux[i] != '-' || remedied[i] == '-' || remedied[i] == 'B'):
					t.Errorf("client %d of the quiescent server goes to %c, with fallback %c", i, linux[i], remedied[i])
				case before[i] == 'B':
					moved[remedied[i]]++
				}
			}
			if moved['A']+moved['C'] < clients/8 {
				t.Errorf("of %d clients only %v had the quiescent server: %s", clients, moved, before)
			}
			if again := who(); again != remedied {
				t.Errorf("with fallback clients go to %s, then to %s", remedied, again)
			}
		})
	}
}

// A server of weight 0 loses its connections in a stated time, for all
// clients; without the setting they stay until their clients end them.
func TestDrain(t *testing.T) {
	const (
		busy, silent, over = "10.10.0.2:1000", "10.10.0.3:1000", "10.10.0.4:1000"
		held               = "10.10.0.5" // by a template
		// A busy machine makes the edits and sends the next packets within this time.
		timeout = 6 * time.Second
	)
	for _, c := range []struct {
		setting                      string
		finished, anew, late, lateDg string // who gets them
	}{
		// The template's client comes back to the quiescent server.
		{"drain_timeout=0", "B", "A", "A", "A"},
		{"drain_timeout=6", "B", "B", "?", "B"},
	} {
		t.Run(c.setting, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, small)
			tcp, udp, sticky := tcpService(vip, "fo"), service(model.UDP, vip, "fo"), persistent(tcpService("10.20.0.3:80", "fo"))
			for _, s := range []model.Service{tcp, udp, sticky} {
				r.addService(s, 9, 1)
			}
			r.turn(c.setting)
			// the server that gets a packet; ? if there is none.
			who := func(p testenv.Packet) string {
				to, _ := r.fromClient(p).server()
				return names([]netip.AddrPort{to})
			}
			want := func(what string, p testenv.Packet, want string) {
				t.Helper()
				if got := who(p); got != want {
					t.Errorf("%s: goes to %s, want %s", what, got, want)
				}
			}
			r.establish(busy, vip)
			r.establish(silent, vip)
			r.walk(over, vip, server0, handshake+"c:FA s:FA c:A")
			want("a datagram", testenv.UDP(busy, vip, "x"), "A")
			want("a persistent client", testenv.TCP(held+":1000", "10.20.0.3:80", "S"), "A")
			for _, s := range []model.Service{tcp, udp, sticky} {
				r.must(r.EditServer(s.Key, realServer(0, 0)))
			}
			start := time.Now()
			want("an open connection", testenv.TCP(busy, vip, "A"), "A")
			want("a datagram of a known flow", testenv.UDP(busy, vip, "x"), "A")
			want("a connection from a port that was used", testenv.TCP(over, vip, "S"), c.finished)
			want("a new one of a persistent client", testenv.TCP(held+":2000", "10.20.0.3:80", "S"), c.anew)
			time.Sleep(time.Until(start.Add(timeout + 500*time.Millisecond)))
			// Those that had packets are gone by themselves.
			wantActive := map[string]uint32{"A": 2, "?": 1}[c.late]
			r.atLast(20*time.Second, fmt.Sprintf("the server has %d active connections alone", wantActive), func() bool {
				active, inactive := r.counts(tcp.Key, serverAddr(0))
				return active == wantActive && inactive == 0
			})
			reasons := r.reasonsOf(func() {
				want("an open connection, late", testenv.TCP(busy, vip, "A"), c.late)
				want("a silent one, late", testenv.TCP(silent, vip, "A"), c.late)
			})
			if n := reasons["pass no connection"]; n != uint64(len(reasons)*2) {
				t.Errorf("reasons: %v", reasons)
			}
			want("a datagram of a known flow, late", testenv.UDP(busy, vip, "x"), c.lateDg)
			want("an open connection, opened again", testenv.TCP(silent, vip, "S"), map[string]string{"A": "A", "?": "B"}[c.late])
			if c.late != "?" {
				return
			}
			if active, inactive := r.counts(tcp.Key, serverAddr(0)); active+inactive != 0 {
				t.Errorf("the drained server has %d active, %d inactive connections", active, inactive)
			}
			// With a weight again it is as any other, now and when it is next drained.
			r.must(r.EditServer(udp.Key, realServer(0, 9)))
			want("a datagram to the server of before", testenv.UDP("10.10.0.9:9", vip, "x"), "A")
			r.must(r.EditServer(udp.Key, realServer(0, 0)))
			want("a datagram to it while it drains again", testenv.UDP("10.10.0.9:9", vip, "x"), "A")
		})
	}
}

// A client in the servers' own network reaches a server in the director's name,
// and its answers come back in the service's.
func TestHairpin(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	datagrams := service(model.UDP, vip, "rr")
	r.addService(s, 1)
	r.turn("hairpin=1")
	// Before the setting and after it.
	r.must(r.AddService(datagrams), r.ns.Do(func() error { return r.AddServer(datagrams.Key, realServer(0, 1)) }))
	for _, client := range []string{"172.16.0.30:40000", "172.16.0.10:40000"} { // a neighbour, the server itself
		for name, c := range map[string]struct{ question, answer testenv.Packet }{
			"TCP":              {testenv.TCP(client, vip, "S"), testenv.TCP(server0, client, "SA")},
			"UDP":              {testenv.UDP(client, vip, "question"), testenv.UDP(server0, client, "")},
			"UDP, no checksum": {testenv.UDP(client, vip, "question").NoChecksum(), testenv.UDP(server0, client, "").NoChecksum()},
		} {
			t.Run(name+" of "+client, func(t *testing.T) {
				got := r.fromServer(c.question)
				director, _, err := testenv.Ends(got.frame)
				r.must(err)
				if p := director.Port(); p < 1024 || p >= 32768 {
					t.Errorf("the director speaks from port %d", p)
				}
				wantForwarded(t, got, c.question.From(netip.AddrPortFrom(netip.MustParseAddr("172.16.0.1"), director.Port()).String()).
					To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
				// Both programs may get either half.
				if again := r.fromClient(c.question); again.verdict != redirect || !bytes.Equal(again.frame, got.frame) {
					t.Errorf("the same again: %s, % x, want % x", again.verdict, again.frame, got.frame)
				}
				wantForwarded(t, r.fromServer(c.answer.To(director.String())),
					c.answer.From(vip).TTL(63).MACs(serverDevMAC, serverMAC))
			})
		}
	}
	r.walk("10.10.0.2:40000", vip, server0, handshake) // from elsewhere, as ever
	if n := r.hairpins(); n != 4 {
		t.Errorf("%d hairpins, want 4", n)
	}
	// A port is the connection's for as long as that lives, and no longer.
	r.timeouts(100*time.Millisecond, everyState()...)
	for _, client := range []string{"172.16.0.30:40000", "172.16.0.10:40000"} {
		r.fromServer(testenv.TCP(client, vip, "R"))
		r.fromServer(testenv.UDP(client, vip, "x"))
	}
	r.fromClient(testenv.TCP("10.10.0.2:40000", vip, "R"))
	r.atLast(time.Minute, "connections end with their hairpins", func() bool {
		return r.leftovers(s.Key, datagrams.Key) == leftovers{}
	})
}

// The length of a fragmented SCTP packet is not known: a checksum for other
// ports cannot be had. Its fragments do not go on, and whole packets do.
func TestHairpinSCTPFragments(t *testing.T) {
	r := newRig(t, small)
	s := service(model.SCTP, vip, "rr")
	r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: serverAddr(0), Port: 80, Weight: 1}))
	r.turn("hairpin=1")
	p := testenv.SCTP("172.16.0.30:40000", vip, testenv.SCTPInit).Payload(strings.Repeat("data", 10))
	first := p.Fragments(32)[0]
	whole := r.fromServer(p)
	if _, _, err := testenv.Hairpinned(p.Frame(), whole.frame); whole.verdict != redirect || err != nil {
		t.Errorf("a whole packet: %s, %v", whole.verdict, err)
	}
	director, _, err := testenv.Ends(whole.frame)
	r.must(err)
	answer := testenv.SCTP(server0, director.String(), testenv.SCTPInitAck).From("172.16.0.10:80").Payload(strings.Repeat("data", 10))
	for name, frame := range map[string][]byte{"a first fragment": first, "that of an answer": answer.Fragments(32)[0]} {
		reasons := r.reasonsOf(func() { wantUntouched(t, drop, r.send(r.progs.LbServer, skBuff{}, frame), frame) })
		if diff := cmp.Diff(map[string]uint64{"drop sctp fragment": 1}, reasons); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Without a port for it a client gets no connection, and none is left. A single one that ends is found.
func TestHairpinWithoutPort(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	x.addService(s, 1)
	x.turn("hairpin=1")
	x.timeouts(time.Minute, bpfobj.LbConnStateTCP_SYN_RECV)
	syn := testenv.TCP("172.16.0.30:40000", vip, "S")
	opens := func() (director netip.AddrPort) {
		t.Helper()
		x.Seed(1)
		director, _, err := testenv.Ends(x.fromServerOn(cpuB, syn).frame)
		x.must(err)
		return director
	}
	first := opens()
	x.pass(2 * time.Minute)
	x.wantNothingLeft("the first is over")
	others := hairpinsFrom(first, netip.MustParseAddrPort(server0), s.Key)
	x.insert(others)
	reasons := x.reasonsOf(func() {
		x.Seed(1)
		wantUntouched(t, drop, x.fromServerOn(cpuB, syn), syn.Frame())
	})
	if diff := cmp.Diff(map[string]uint64{"drop no hairpin": 1}, reasons); diff != "" {
		t.Error(diff)
	}
	if got, want := x.leftovers(s.Key), (leftovers{conns: hairpinTries, replies: hairpinTries, active: hairpinTries}); got != want {
		t.Errorf("left: %+v, want %+v", got, want)
	}
	x.wantSound("refused")
	ended := others[hairpinTries/2]
	x.fromServerOn(cpuB, testenv.TCP(ended.Client.String(), vip, "R"))
	x.pass(20 * time.Second)
	if port := opens().Port(); port != ended.Hairpin.Port() {
		t.Errorf("the director speaks from port %d, want %d, the only one that is left", port, ended.Hairpin.Port())
	}
	x.wantSound("open")
}

// hairpinTries is HAIRPIN_TRIES of bpf/hairpin.h.
const hairpinTries = 64

// hairpinsFrom are connections that have all the ports which a hairpin tries, from its first one on.
func hairpinsFrom(first, server netip.AddrPort, service model.ServiceKey) (all []model.Connection) {
	for i := range hairpinTries {
		port := hairpinPort + (int(first.Port())-hairpinPort+i)%hairpinPorts
		all = append(all, model.Connection{
			Protocol: model.TCP, State: "ESTABLISHED", Expires: time.Hour, Client: netip.MustParseAddrPort("172.16.0.31:" + strconv.Itoa(2000+i)),
			Virtual: netip.MustParseAddrPort(vip), Server: server, RealServer: server, Service: service, Flags: model.ConnHairpin,
			Hairpin: netip.AddrPortFrom(first.Addr(), uint16(port)),
		})
	}
	return all
}
