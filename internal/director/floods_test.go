// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

const (
	floodVIP = "10.20.0.9:80" // of the service that is flooded
	calmVIP  = "10.20.0.1:80" // of the others
)

// invented is the i-th client of a flood.
func invented(i int) string {
	return fmt.Sprintf("10.10.%d.%d:%d", 128|i>>8&0x7f, i&0xff, 1024+i>>15)
}

// unprovenOf is how many unproven entries a service's servers count.
func (r *rig) unprovenOf(k model.ServiceKey) (n uint64) {
	r.Helper()
	set, err := r.config()
	r.must(err)
	loads, err := lookupAll[bpfobj.LbLoad](r.maps.Loads, set.Servers)
	r.must(err)
	servers, err := lookupAll[bpfobj.LbServer](r.maps.Servers, set.Servers)
	r.must(err)
	for id, l := range loads {
		if servers[id].Owner == toKey(k) {
			n += uint64(unproven(l))
		}
	}
	return n
}

// wantUnproven expects the unproven entries that a service's servers count.
func (r *rig) wantUnproven(k model.ServiceKey, want uint64, when string) {
	r.Helper()
	if got := r.unprovenOf(k); got != want {
		r.Errorf("%s: %d unproven entries, want %d", when, got, want)
	}
}

// displaced is how many entries ended for others.
func (r *rig) displaced() uint64 {
	r.Helper()
	counts, err := r.handshakes()
	r.must(err)
	return counts.Displaced
}

// crowded waits until the service that has most unproven entries is known to be this one.
func (r *rig) crowded(k model.ServiceKey) {
	r.Helper()
	var svc bpfobj.LbService
	r.must(r.maps.Services.Lookup(toKey(k), &svc))
	family := 0
	if k.Family == model.IPv6 {
		family = 1
	}
	r.atLast(time.Minute, "the flooded service has most", func() bool {
		s, err := r.Director.state()
		r.must(err)
		most := s.Attack.Crowds[family]
		return most.Most > 0 && most.Service == svc.Id
	})
}

// floodRig has a service of each protocol that is flooded, and others.
func floodRig(t *testing.T, room uint32) (*rig, map[string]model.Service) {
	r := newRig(t, Sizes{Services: 16, Servers: 64, Connections: room})
	services := map[string]model.Service{}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		flooded, calm := service(p, floodVIP, "rr"), service(p, calmVIP, "rr")
		r.must(r.AddService(flooded), r.AddServer(flooded.Key, realServer(1, 1)))
		r.must(r.AddService(calm), r.AddServer(calm.Key, realServer(0, 1)))
		services["flooded "+p.String()], services["calm "+p.String()] = flooded, calm
	}
	return r, services
}

// fill sends packets that open a connection each until the connection table is full, and says how
// many.
func (r *rig) fill(f model.Family, packet func(i int) testenv.Packet) (n int) {
	r.Helper()
	for {
		free := r.freeLines(f) // without those of blocks that become buckets'
		if free == 0 {
			return n
		}
		r.flood(free, func(i int) testenv.Packet { return packet(n + i) })
		n += free
	}
}

// converse has a client and its server of UDP exchange n datagrams.
func (r *rig) converse(client, service, server string, n int) {
	r.Helper()
	for range n {
		if got := r.fromClient(testenv.UDP(client, service, "question")); got.verdict != redirect {
			r.Fatalf("%s: a question: %s", client, got.verdict)
		}
		if got := r.fromServer(testenv.UDP(server, client, "answer")); got.verdict != redirect {
			r.Fatalf("%s: an answer: %s", client, got.verdict)
		}
	}
}

// What a flood of one service fills the table with makes room for all others, and for each
// other. The flooded service's connections that were answered live.
func TestFloodOfOneService(t *testing.T) {
	t.Parallel()
	const room, kept, others = 1024, 40, 100
	for name, packet := range map[string]func(client string) testenv.Packet{
		"UDP":  func(c string) testenv.Packet { return testenv.UDP(c, floodVIP, "x") },
		"SCTP": func(c string) testenv.Packet { return testenv.SCTP(c, floodVIP, testenv.SCTPInit).Payload("init") },
	} {
		t.Run(name, func(t *testing.T) {
			r, services := floodRig(t, room)
			r.timeouts(5*time.Minute, append(everyState(), bpfobj.LbConnStateSCTP_INIT1, bpfobj.LbConnStateSCTP_INIT)...)
			flooded := services["flooded "+map[string]string{"UDP": model.UDP.String(), "SCTP": model.SCTP.String()}[name]]
			for i := range kept {
				r.converse(fmt.Sprintf("10.10.1.%d:2000", i), floodVIP, realServer(1, 1).AddrPort().String(), 2)
				r.converse(fmt.Sprintf("10.10.2.%d:2000", i), calmVIP, server0, 2)
				r.walk(fmt.Sprintf("10.10.3.%d:2000", i), calmVIP, server0, handshake+"s:A")
			}
			flood := func(from, n int) {
				r.flood(n, func(i int) testenv.Packet { return packet(invented(from + i)) })
			}
			n := r.fill(model.IPv4, func(i int) testenv.Packet { return packet(invented(i)) })
			full := r.conns()
			r.crowded(flooded.Key)
			before := r.displaced()
			got := r.reasonsOf(func() {
				for i := range others {
					flood(n+20*i, 20)
					r.syn(fmt.Sprintf("10.10.4.%d:%d", i, 3000), calmVIP)
					if got := r.fromClient(testenv.UDP(fmt.Sprintf("10.10.5.%d:%d", i, 3000), calmVIP, "x")); got.verdict != redirect {
						t.Errorf("a datagram to another service: %s", got.verdict)
					}
					if got := r.fromClient(testenv.SCTP(fmt.Sprintf("10.10.6.%d:%d", i, 3000), calmVIP, testenv.SCTPInit).Payload("init")); got.verdict != redirect {
						t.Errorf("an association of another service: %s", got.verdict)
					}
				}
			})
			if len(got) != 0 {
				t.Errorf("not forwarded: %v", got)
			}
			if n := r.conns(); n > full || full < room {
				t.Errorf("%d entries, there is room for %d, and %d were asked for", n, full, room)
			}
			if n := r.displaced() - before; n < 20*others {
				t.Errorf("%d entries were displaced, want %d at least", n, 20*others)
			}
			if lines, n := r.linesInUse(), r.conns()+len(r.replies()); lines != n {
				t.Errorf("%d lines are in use by %d entries", lines, n)
			}
			all, err := collected(r.Director)
			r.must(err)
			left := map[string]int{}
			for _, c := range all {
				left[netip.PrefixFrom(c.Client.Addr(), 24).Masked().String()]++
			}
			for i, want := range map[int]int{1: kept, 2: kept, 3: kept, 4: others, 5: others, 6: others} {
				if got := left[fmt.Sprintf("10.10.%d.0/24", i)]; got != want {
					t.Errorf("group %d: %d connections of %d are left", i, got, want)
				}
			}
			r.wantClean("flooded")
		})
	}
}

// A flood of IPv6 displaces its own, too.
func TestFloodOfIPv6(t *testing.T) {
	t.Parallel()
	const room = 512
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: room})
	vip := at(ipv6.vip(vipMasq), 80)
	udp, tcp := service(model.UDP, vip, "rr"), service(model.TCP, vip, "rr")
	for _, s := range []model.Service{udp, tcp} {
		r.must(r.AddService(s), r.AddServer(s.Key, ipv6.real(0, 8080)))
	}
	client := func(i int) string { return fmt.Sprintf("[fd00:10::%x]:%d", 0x1000+i, 2000) }
	n := r.fill(model.IPv6, func(i int) testenv.Packet { return testenv.UDP(client(i), vip, "x") })
	if have := r.conns(model.IPv6); have < room/2 { // an entry takes the room of two
		t.Errorf("room for %d, want %d at least", have, room/2)
	}
	r.crowded(udp.Key)
	got := r.reasonsOf(func() {
		r.flood(room, func(i int) testenv.Packet { return testenv.UDP(client(n+i), vip, "x") })
		for i := range 50 {
			r.syn(client(n+room+i), vip)
		}
	})
	if len(got) != 0 {
		t.Errorf("not forwarded: %v", got)
	}
	r.wantClean("flooded")
}

// Without another's unproven entries a full table still refuses: what is proven stays.
func TestProvenStayInFullTable(t *testing.T) {
	t.Parallel()
	const room = 128
	r, services := floodRig(t, room)
	for i := 0; r.freeLines(model.IPv4) > 0; i++ {
		r.converse(invented(i), floodVIP, realServer(1, 1).AddrPort().String(), 2)
	}
	r.wantUnproven(services["flooded "+model.UDP.String()].Key, 0, "answered twice")
	got := r.reasonsOf(func() {
		for i := range 20 {
			r.fromClient(testenv.UDP(fmt.Sprintf("10.10.5.%d:3000", i), calmVIP, "x"))
		}
	})
	if got["drop table full"] != 20 || len(got) != 1 || r.displaced() != 0 {
		t.Errorf("reasons %v, %d displaced", got, r.displaced())
	}
}

// The second half of an entry of IPv6 is none, though it looks like one for some marks.
func TestDisplacedOfIPv6(t *testing.T) {
	t.Parallel()
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: 256})
	f := families[1]
	r.serve(model.Service{Key: model.MarkKey(0x0a0000, model.IPv6), Scheduler: "rr", Netmask: 128}, f.real(0, 8080))
	r.must(r.Mark(MarkRule{netip.MustParsePrefix("2001:db8::/64"), 0x0a0000}))
	asks := func(i int) testenv.Packet {
		return testenv.UDP(fmt.Sprintf("[fd00:10::%x]:2000", 0x1000+i), "[2001:db8::1]:53", "x")
	}
	n := r.fill(model.IPv6, asks)
	const more = 300
	got := r.reasonsOf(func() { r.flood(more, func(i int) testenv.Packet { return asks(n + i) }) })
	if d := r.displaced(); n < 64 || d < more || len(got) != 0 {
		t.Errorf("%d connections in a full table; %d displaced for %d more; reasons %v", n, d, more, got)
	}
}

// Where all were answered, one of them is enough; when others come that were not answered, these make
// room again.
func TestAnsweredAreDisplacedLastAgain(t *testing.T) {
	t.Parallel()
	r, services := floodRig(t, 256)
	server := realServer(1, 1).AddrPort().String()
	asks := func(i int) testenv.Packet { return testenv.UDP(invented(i), floodVIP, "x") }
	answered := func() (n int) {
		r.must(r.eachEntry(t.Context(), model.IPv4, func(e *entry) error {
			if e.Flags&uint8(bpfobj.LbConnFlagCONN_ASSURED) != 0 {
				n++
			}
			return nil
		}))
		return n
	}
	n := r.fill(model.IPv4, asks)
	all, err := collected(r.Director)
	r.must(err)
	for _, c := range all {
		r.fromServer(testenv.UDP(server, c.Client.String(), "answer"))
	}
	r.crowded(services["flooded "+model.UDP.String()].Key)
	if got := answered(); got != len(all) {
		t.Fatalf("%d of %d are answered", got, len(all))
	}
	r.flood(200, func(i int) testenv.Packet { return asks(n + i) })
	before := answered()
	r.flood(200, func(i int) testenv.Packet { return asks(n + 200 + i) })
	if now := answered(); before == len(all) || before-now > 64 {
		t.Errorf("of %d that were answered %d are left after 200 others, %d after 400", len(all), before, now)
	}
}

// Of a service that answers each packet, what was answered once makes room, but after what was
// not answered; conversations stay.
func TestAnsweredOnceAreDisplacedLast(t *testing.T) {
	t.Parallel()
	const room, once = 256, 64
	r, services := floodRig(t, room)
	server := realServer(1, 1).AddrPort().String()
	for i := range once {
		r.converse(fmt.Sprintf("10.10.1.%d:2000", i), floodVIP, server, 1)
	}
	n := r.fill(model.IPv4, func(i int) testenv.Packet { return testenv.UDP(invented(i), floodVIP, "x") })
	r.crowded(services["flooded "+model.UDP.String()].Key)
	r.flood(n, func(i int) testenv.Packet { return testenv.UDP(invented(n+i), floodVIP, "x") })
	left := func() (n int) {
		all, err := collected(r.Director)
		r.must(err)
		for _, c := range all {
			if netip.MustParsePrefix("10.10.1.0/24").Contains(c.Client.Addr()) {
				n++
			}
		}
		return n
	}
	if n := left(); n != once {
		t.Errorf("%d of %d that were answered are left beside many that were not", n, once)
	}
	// All are answered: then these make room.
	all, err := collected(r.Director)
	r.must(err)
	for _, c := range all {
		r.fromServer(testenv.UDP(server, c.Client.String(), "answer"))
	}
	r.syn("10.10.4.1:3000", calmVIP)
}

// Call-IDs fill neither the connection table for others, nor the table of calls for each
// other.
func TestFloodOfCalls(t *testing.T) {
	t.Parallel()
	const calls = 1 << 16 // MAX_CALLS of bpf/maps.h
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: 1 << 18})
	sip := sipService()
	r.addService(sip, 1)
	tcp := tcpService(calmVIP, "rr")
	r.addService(tcp, 1)
	r.flood(calls, func(i int) testenv.Packet { return testenv.UDP(sipClient(i), sipVIP, invite(fmt.Sprint("flood", i))) })
	if n := r.entries(r.maps.CallNumbers); n != calls {
		t.Fatalf("%d calls, want %d", n, calls)
	}
	r.crowded(sip.Key)
	got := r.reasonsOf(func() {
		for i := range 200 {
			if got := r.fromClient(testenv.UDP(sipClient(calls+i), sipVIP, invite(fmt.Sprint("call", i)))); got.verdict != redirect {
				t.Errorf("call %d: %s", i, got.verdict)
			}
		}
	})
	if len(got) != 0 {
		t.Errorf("not forwarded: %v", got)
	}
	if n := r.entries(r.maps.CallNumbers); n != calls {
		t.Errorf("%d calls, want %d", n, calls)
	}
	r.wantClean("flooded")
}

// The same where the connection table is what is full: templates and connections.
func TestFloodOfCallsInFullTable(t *testing.T) {
	t.Parallel()
	const room = 1024
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: room})
	sip := sipService()
	r.addService(sip, 1)
	tcp := tcpService(calmVIP, "rr")
	r.addService(tcp, 1)
	r.flood(room, func(i int) testenv.Packet { return testenv.UDP(sipClient(i), sipVIP, invite(fmt.Sprint("flood", i))) })
	r.crowded(sip.Key)
	got := r.reasonsOf(func() {
		for i := range 100 {
			r.syn(fmt.Sprintf("10.10.4.%d:3000", i), calmVIP)
			r.fromClient(testenv.UDP(sipClient(room+i), sipVIP, invite(fmt.Sprint("call", i))))
		}
	})
	if len(got) != 0 {
		t.Errorf("not forwarded: %v", got)
	}
	r.wantClean("flooded")
}

// A packet that finds room for its template, and none for its connection, does not end that template.
// Its next attempt would only make the same template again.
func TestOwnTemplateIsNotDisplaced(t *testing.T) {
	t.Parallel()
	const room = 256
	x := &interleaved{rig: newRig(t, Sizes{Services: 16, Servers: 16, Connections: room})}
	x.halfOpenLimit(0)
	x.addService(sipService(), 1)
	x.addService(persistent(service(model.UDP, "10.20.0.2:53", "rr")), 1)
	x.addService(tcpService(calmVIP, "rr"), 1)
	for i := 0; x.freeLines(model.IPv4) > 1; i++ {
		x.fromClientOn(cpuA, testenv.TCP(invented(i), calmVIP, "S"))
	}
	for i := range 16 { // each finds the template of the one before, and may displace it
		packet, before := testenv.UDP(sipClient(i), sipVIP, invite("a@h")), x.displaced()
		if i%2 == 1 {
			packet = testenv.UDP(fmt.Sprintf("10.10.4.%d:3000", i), "10.20.0.2:53", "x")
		}
		got := x.fromClientOn(cpuB, packet)
		if n := x.displaced() - before; got.verdict != drop || n > uint64(min(i, 1)) {
			t.Errorf("packet %d: %s, and %d were displaced, want at most %d", i, got.verdict, n, min(i, 1))
		}
	}
	x.wantClean("in the end")
}

// When an entry is proven, on every path and of each protocol, and that its count follows.
func TestProven(t *testing.T) {
	for _, traced := range []bool{false, true} { // the whole path alone
		t.Run(map[bool]string{false: "fast path", true: "whole path"}[traced], func(t *testing.T) {
			r := newRig(t, small)
			tcp, udp := tcpService(vip, "rr"), service(model.UDP, vip, "rr")
			r.addService(tcp, 1)
			r.addService(udp, 1)
			if traced {
				tracer := r.trace(Filter{})
				defer r.untrace(tracer)
			}
			for i, c := range []struct {
				steps    string
				unproven uint64
			}{
				{"c:S", 1},
				{"c:S s:SA", 1},
				{"c:S c:A", 1},
				{handshake, 1},
				{handshake + "s:R", 1},
				{handshake + "c:PA", 1},
				{handshake + "s:A", 0},
				{handshake + "s:PA c:A", 0},
				{handshake + "c:PA s:A", 0},
				{handshake + "c:FA s:FA", 0},
				{"c:S s:SA s:SA", 1},
			} {
				before := r.unprovenOf(tcp.Key)
				r.walk(nthClient(i), vip, server0, c.steps)
				r.wantUnproven(tcp.Key, before+c.unproven, c.steps)
			}
			r.fromClient(testenv.UDP(client1, vip, "x"))
			r.wantUnproven(udp.Key, 1, "a datagram")
			r.fromServer(testenv.UDP(server0, client1, "x"))
			r.wantUnproven(udp.Key, 1, "an answer")
			r.fromServer(testenv.UDP(server0, client1, "x"))
			r.wantUnproven(udp.Key, 1, "another answer to the same")
			r.fromClient(testenv.UDP(client1, vip, "x"))
			r.wantUnproven(udp.Key, 1, "another datagram")
			r.fromServer(testenv.UDP(server0, client1, "x"))
			r.wantUnproven(udp.Key, 0, "its answer")
			r.wantClean("with unproven entries")
			st, err := r.Status()
			r.must(err)
			if got := st.Unproven; got.Entries != r.unprovenOf(tcp.Key) || len(got.Services) != 1 || got.Services[0].Service != tcp.Key.String() {
				t.Errorf("status: %+v", got)
			}
		})
	}
}

// Entries that end, are imported, or whose template becomes real, leave no count behind.
func TestUnprovenCountsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	tcp, udp := tcpService(vip, "rr"), persistent(service(model.UDP, vip, "rr"))
	udp.Timeout = 5 * time.Second
	r.addService(tcp, 1)
	r.addService(udp, 1)
	r.flood(100, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	r.flood(100, func(i int) testenv.Packet { return testenv.UDP(nthClient(i), vip, "x") })
	r.wantUnproven(tcp.Key, 100, "half open")
	r.wantUnproven(udp.Key, 200, "connections and templates")
	for i := range 50 {
		r.converse(nthClient(i), vip, server0, 1)
	}
	r.wantUnproven(udp.Key, 100, "half of them answered twice")
	entries := r.exported()
	r.wantClean("before")

	other := newRig(t, small)
	other.addService(tcp, 1)
	other.addService(udp, 1)
	other.insert(entries)
	other.wantUnproven(tcp.Key, 100, "imported")
	other.wantUnproven(udp.Key, 100, "imported")
	other.wantClean("imported")
	for _, r := range []*rig{r, other} {
		r.timeouts(time.Second, everyState()...)
		for i := range 100 {
			r.fromClient(testenv.TCP(nthClient(i), vip, "S"))
			r.fromClient(testenv.UDP(nthClient(i), vip, "x"))
		}
		r.atLast(5*time.Minute, "connections end", func() bool { return r.conns() == 0 })
		r.wantUnproven(tcp.Key, 0, "all over")
		r.wantUnproven(udp.Key, 0, "all over")
	}
}

// Handshakes of clients that do not exist are an attack, though ACKs complete them: if no
// server answers, as half-open ones are, else when they are half of the room.
func TestForgedHandshakes(t *testing.T) {
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered %t", answered), func(t *testing.T) {
			s := newSiege(t, 100)
			const n = 150
			set, err := s.v.d.config()
			s.must(err)
			set.Room[0] = 2*n - 2
			if !answered {
				set.Room[0] = 1 << 20
			}
			s.must(putConfig(s.v.d.maps.Config, set))
			s.syns(0, n)
			s.must(s.ns.Do(func() error {
				for i := range n {
					if answered {
						if _, err := s.v.FromServer(testenv.TCP(server0, nthClient(i), "SA").Frame()); err != nil {
							return err
						}
					}
					if _, err := s.v.FromClient(testenv.TCP(nthClient(i), vip, "A").Frame()); err != nil {
						return err
					}
				}
				return nil
			}))
			s.tick(2 * VirtualTick)
			if a := s.attack(); answered && a.HalfOpen != 0 {
				t.Errorf("half open: %d", a.HalfOpen)
			}
			s.want(true, 1, "forged handshakes")
			if n := s.syns(200, 300); n != 100 {
				t.Errorf("%d of 100 clients were challenged", n)
			}
		})
	}
}

// Where replies take another way the director cannot tell a forged handshake: it is an attack
// when half of the room is connections without proof, until there is half as many.
func TestForgedHandshakesOfDirectRouting(t *testing.T) {
	s := newSiege(t, 1<<20)
	const room = 300
	set, err := s.v.d.config()
	s.must(err)
	set.Room = [2]uint32{room, room}
	s.must(s.v.Reset(1), s.v.Serve(tcpService(vip, "rr"), []model.Server{ipv4.direct(0, 80)}))
	set2, err := s.v.d.config()
	s.must(err)
	set2.Room, set2.HalfOpenLimit = set.Room, set.HalfOpenLimit
	s.must(putConfig(s.v.d.maps.Config, set2))
	s.now = VirtualStart
	pairs := func(from, to int) (challenged int) {
		challenged = s.syns(from, to)
		s.must(s.ns.Do(func() error {
			for i := from; i < to; i++ {
				if _, err := s.v.FromClient(testenv.TCP(nthClient(i), vip, "A").Frame()); err != nil {
					return err
				}
			}
			return nil
		}))
		return challenged
	}
	pairs(0, room/2)
	s.tick(2 * VirtualTick)
	s.want(false, 0, "half of the room")
	pairs(room/2, room/2+10)
	s.tick(2 * VirtualTick)
	s.want(true, 1, "more than half of it")
	if n := pairs(room, 2*room); n != room {
		t.Errorf("%d of %d clients were challenged", n, room)
	}
	if a := s.attack(); a.HalfOpen != 0 {
		t.Errorf("half open: %d", a.HalfOpen)
	}
	s.tick(15*time.Minute + 10*time.Second)
	s.want(false, 1, "when they are gone")
}

// A proof is one of the client's /64: it is good for all of its addresses, and has one place
// in the table, however many of them prove themselves.
func TestProofOfNetwork(t *testing.T) {
	r := newRig(t, small)
	f := ipv6
	vip := at(f.vip(vipMasq), 80)
	s := tcpService(vip, "rr")
	r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 1}))
	r.turn("syn_defence=always")
	challenged := func(client string) bool {
		before, err := r.handshakes()
		r.must(err)
		r.fromClient(testenv.TCP(client, vip, "S"))
		after, err := r.handshakes()
		r.must(err)
		return after.Challenged > before.Challenged
	}
	prove := func(client string) {
		syn := testenv.TCP(client, vip, "S").MACs(routerMAC, clientDevMAC)
		cookie := r.cookie(f, syn, r.fromClient(syn))
		if v := r.send(r.progs.LbClient, skBuff{}, reset(f, client, vip, cookie)); v.verdict != drop {
			t.Fatalf("%s: the right answer: %s", client, v.verdict)
		}
	}
	prove("[fd00:10::2]:1000")
	for client, want := range map[string]bool{"[fd00:10::2]:1001": false, "[fd00:10::ffff:3]:1000": false, "[fd00:10:0:1::2]:1000": true} {
		if got := challenged(client); got != want {
			t.Errorf("%s: challenged is %t", client, got)
		}
	}
	// Used up by all of them together.
	const credit = 256 // PROOF_CREDIT of bpf/challenge.h
	first := -1
	for i := range credit {
		if challenged(fmt.Sprintf("[fd00:10::1:%x]:1000", i)) {
			first = i
			break
		}
	}
	if want := credit - 2; first != want {
		t.Errorf("connection %d of others is challenged, want %d", first, want)
	}
	for i := range 20 {
		client := fmt.Sprintf("[fd00:10::2:%x]:1000", i)
		if i == 0 || challenged(client) {
			prove(client)
		}
	}
	a, err := r.Attack()
	r.must(err)
	if a.Proven != 1 {
		t.Errorf("%d proofs of one network", a.Proven)
	}
}

// One client has its share of the room and no more, until one of its connections ends.
func TestClientShare(t *testing.T) {
	t.Parallel()
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			const room, share = 2000, 50 // 1/1000
			r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: room})
			set, err := r.config()
			r.must(err)
			most := int(set.Room[map[model.Family]int{model.IPv4: 0, model.IPv6: 1}[f.number]]) * share / 1000
			if f.number == model.IPv4 && most < room*share/1000 || most < room*share/2000 {
				t.Fatalf("one client has %d connections", most)
			}
			vip := at(f.vip(vipMasq), 80)
			udp, tcp := service(model.UDP, vip, "rr"), service(model.TCP, vip, "rr")
			for _, s := range []model.Service{udp, tcp} {
				r.must(r.AddService(s), r.AddServer(s.Key, f.real(0, 8080)))
			}
			r.turn(fmt.Sprintf("client_share=%d", share))
			address, other := netip.MustParseAddr(f.client), netip.MustParseAddr(f.client).Next()
			if f.number == model.IPv6 {
				other = netip.MustParseAddr("fd00:10:0:7::2") // another /64
			}
			opens := func(a netip.Addr, port int) verdict {
				return r.fromClient(testenv.UDP(at(a.String(), port), vip, "x")).verdict
			}
			for i := range most {
				from := address
				if f.number == model.IPv6 && i%2 == 1 {
					from = netip.MustParseAddr("fd00:10::abcd") // of the same /64
				}
				if v := opens(from, 2000+i); v != redirect {
					t.Fatalf("connection %d: %s", i, v)
				}
			}
			got := r.reasonsOf(func() {
				if v := opens(address, 9000); v != drop {
					t.Errorf("one more: %s", v)
				}
				if v := opens(address, 2000); v != redirect {
					t.Errorf("a packet of one that there is: %s", v)
				}
				if v := opens(other, 9000); v != redirect {
					t.Errorf("another client: %s", v)
				}
				if v := r.fromClient(testenv.TCP(at(address.String(), 9001), vip, "S")).verdict; v != drop {
					t.Errorf("of another protocol: %s", v)
				}
			})
			if got["drop client share"] != 2 || len(got) != 1 {
				t.Errorf("reasons %v", got)
			}
			if a := r.explain(at(address.String(), 9002), vip); a.Packet.Verdict != "drop" || a.Packet.Reason != "client share" {
				t.Errorf("foretold: %+v", a.Packet)
			}
			r.timeouts(time.Second, everyState()...)
			opens(address, 2000)
			r.atLast(2*time.Minute, "one of them ends, and there is room for another", func() bool { return opens(address, 9000) == redirect })
			r.turn("client_share=0")
			if v := opens(address, 9003); v != redirect {
				t.Errorf("without a share: %s", v)
			}
		})
	}
}
