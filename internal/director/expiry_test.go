// SPDX-License-Identifier: Apache-2.0

package director

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// everyState is all states of a connection.
func everyState() (all []bpfobj.LbConnState) {
	for s := range bpfobj.LbConnStateCONN_TEMPLATE {
		all = append(all, s)
	}
	return all
}

// leftovers is what the kernel keeps of connections, of both families.
type leftovers struct{ conns, replies, active, inactive int }

func (r *rig) leftovers(keys ...model.ServiceKey) (l leftovers) {
	r.Helper()
	l.conns = r.conns()
	l.replies = len(r.replies())
	for _, k := range keys {
		for _, s := range r.status(k).Servers {
			l.active += int(s.Active)
			l.inactive += int(s.Inactive)
		}
	}
	return l
}

// Connections end when their state's timeout has passed, with all that
// belongs to them, whether that timeout grew or shrank on the way.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const short = time.Second
	r := newRig(t, small)
	tcp, udp := tcpService(vip, "rr"), service(model.UDP, vip, "rr")
	r.addService(tcp, 1)
	r.addService(udp, 1)
	start, stalls := map[string]time.Time{}, testenv.WatchStalls(t)
	for i, c := range []struct {
		steps string // "" is a datagram
		state bpfobj.LbConnState
	}{
		{"c:S", bpfobj.LbConnStateTCP_SYN_RECV},
		{handshake, bpfobj.LbConnStateTCP_ESTABLISHED},
		{handshake + "c:R", bpfobj.LbConnStateTCP_CLOSE},
		{handshake + "c:FA s:FA c:A", bpfobj.LbConnStateTCP_TIME_WAIT},
		{handshake + "s:FA", bpfobj.LbConnStateTCP_FIN_WAIT},
		{handshake + "c:FA", bpfobj.LbConnStateTCP_CLOSE_WAIT},
		{"", bpfobj.LbConnStateCONN_UDP},
	} {
		client := nthClient(i)
		r.timeouts(20*time.Second, everyState()...)
		r.timeouts(short, c.state)
		start[client] = time.Now()
		if c.steps == "" {
			r.fromClient(testenv.UDP(client, vip, "x"))
		} else {
			r.walk(client, vip, server0, c.steps)
		}
	}
	lives := r.lifetimes(start, short+10*time.Second)
	for i := range len(start) {
		// A clock that is read each 4 ms, ticks of 67 ms, 250 ms of slack
		// for writing, and stalls of the machine.
		if d, ended := lives[nthClient(i)]; !ended || d < short-300*time.Millisecond || d > short+time.Second+2*stalls.Longest() {
			t.Errorf("connection %d ended after %s (%t), want %s", i, d, ended, short)
		}
	}
	// A connection leaves the table before its server's count.
	r.atLast(time.Minute, "nothing is left", func() bool { return r.leftovers(tcp.Key, udp.Key) == leftovers{} })
}

// lifetimes watches connections, by client, until all are gone.
func (r *rig) lifetimes(start map[string]time.Time, limit time.Duration) map[string]time.Duration {
	r.Helper()
	lives := map[string]time.Duration{}
	for begin := time.Now(); len(lives) < len(start) && time.Since(begin) < limit; time.Sleep(10 * time.Millisecond) {
		all, err := collected(r.Director)
		r.must(err)
		for client, since := range start {
			alive := slices.ContainsFunc(all, func(c model.Connection) bool { return c.Client.String() == client })
			if _, known := lives[client]; !alive && !known {
				lives[client] = time.Since(since)
			}
		}
	}
	return lives
}

// Packets of either side keep a connection.
func TestPacketsKeepConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.timeouts(5*time.Second, everyState()...)
	r.establish(client1, vip)
	for i := range 32 { // twice the timeout for each side
		time.Sleep(300 * time.Millisecond)
		r.walk(client1, vip, server0, []string{"c:A", "s:A"}[i/16])
	}
	r.atLast(time.Minute, "the connection ends when the packets do", func() bool { return r.leftovers() == leftovers{} })
}

// Very many connections that end at the same time do so on time.
func TestManyExpireAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	tcp, udp := tcpService(vip, "rr"), service(model.UDP, vip, "rr")
	r.addService(tcp, 1, 1, 1)
	r.addService(udp, 1, 1)
	r.timeouts(20*time.Second, everyState()...)
	const n = 20000
	r.flood(n/2, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	r.flood(n/2, func(i int) testenv.Packet { return testenv.UDP(nthClient(i), vip, "x") })
	if got := r.leftovers(tcp.Key, udp.Key); got != (leftovers{conns: n, active: n / 2, inactive: n / 2}) {
		t.Fatalf("%+v of %d connections", got, n)
	}
	r.timeouts(time.Second, everyState()...)
	r.flood(n/2, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "R") })
	r.flood(n/2, func(i int) testenv.Packet { return testenv.UDP(nthClient(i), vip, "x") })
	r.timeouts(time.Second, everyState()...)
	r.atLast(time.Minute, "all connections end", func() bool { return r.leftovers(tcp.Key, udp.Key) == leftovers{} })
}

// An entry takes one line of the table, or two of IPv6, from its first packet to its end, however
// its time grows and shrinks.
func TestLinesOfEntry(t *testing.T) {
	t.Parallel()
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			vip, server, client := at(f.vip(1), 80), at(f.server(0), 8080), at(f.client, 1234)
			r.serve(service(model.TCP, vip, "rr"), f.real(0, 8080))
			want := func(what string, n int) {
				t.Helper()
				if got := r.linesInUse(); got != n {
					t.Errorf("%s: %d lines are in use, want %d", what, got, n)
				}
			}
			r.timeouts(9*time.Second, bpfobj.LbConnStateTCP_SYN_RECV)
			r.syn(client, vip)
			want("begun", 1)
			index := r.allEntries()[0].Index
			r.walk(client, vip, server, "s:SA c:A")
			want("longer", 1)
			r.timeouts(4*time.Second, bpfobj.LbConnStateTCP_CLOSE)
			r.walk(client, vip, server, "c:R")
			want("much shorter", 1)
			if all := r.allEntries(); len(all) != 1 || all[0].Index != index {
				t.Errorf("%d entries, or another than %d: %+v", len(all), index, all)
			}
			r.walk(client, vip, server, "c:S")
			want("begun again", 1)
			r.walk(client, vip, server, "c:A c:R")
			want("much shorter again", 1)
			r.atLast(time.Minute, "the connection ends", func() bool { return r.conns() == 0 })
			r.atLast(time.Minute, "its line is free", func() bool { return r.linesInUse() == 0 })
		})
	}
}

// One client that uses the same port over and over fills no table.
func TestPortReuseFillsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: 256})
	r.addService(tcpService(vip, "rr"), 1)
	for i := range 2000 {
		if got := r.fromClient(testenv.TCP(client1, vip, "S")); got.verdict != redirect {
			t.Fatalf("the SYN of connection %d: %s, with %d connections and %d lines in use",
				i+1, got.verdict, r.conns(), r.linesInUse())
		}
		r.fromClient(testenv.TCP(client1, vip, "R").From(client1))
		r.fromServer(testenv.TCP(server0, client1, "R"))
	}
	if lines := r.linesInUse(); lines > 1 {
		t.Errorf("%d lines are in use by one flow", lines)
	}
}

// A full table refuses connections and loses none; when some end it has room. It is full when each
// line of each block is in use, of which there are enough for as many as were asked for.
func TestFullTable(t *testing.T) {
	t.Parallel()
	const least = 256
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: least})
			vip := at(f.vip(1), 80)
			s := service(model.TCP, vip, "rr")
			r.serve(s, f.real(0, 8080))
			r.timeouts(10*time.Second, everyState()...)
			sent := 3 * least
			got := r.reasonsOf(func() {
				r.flood(sent, func(i int) testenv.Packet { return testenv.TCP(at(f.clientAddr(i), 2000), vip, "S") })
			})
			room := sent - int(got["drop table full"])
			if want := least; room < want && f.number == model.IPv4 || room < want/2 || room == sent || len(got) != 1 {
				t.Errorf("room for %d, and reasons %v: want %d at least, half as many of IPv6", room, got, want)
			}
			if got := r.leftovers(s.Key); got != (leftovers{conns: room, active: room}) {
				t.Errorf("%+v, want %d, all active", got, room)
			}
			if p, b, err := r.blocks(); err != nil || b.Taken+b.Spare < p.Bound {
				t.Errorf("connections were refused with %d of %d blocks in use, %v", b.Taken+b.Spare, p.Bound, err)
			}
			for _, b := range r.allBlocks() {
				if free := b.free() &^ unowned; step(b.kind()) != 0 && free != 0 {
					t.Errorf("connections were refused, and block %d has free lines %#x", b.number, free)
				}
			}
			r.wantClean("full")
			r.atLast(time.Minute, "all is over", func() bool { return r.leftovers(s.Key) == leftovers{} })
			r.syn(at(f.client, 1234), vip)
		})
	}
}

// A table that was full of one family's connections has room for the other's when they have ended.
func TestFullTableOfTheOtherFamily(t *testing.T) {
	t.Parallel()
	const least = 256
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: least})
	r.timeouts(2*time.Second, everyState()...)
	for _, f := range families {
		r.serve(service(model.TCP, at(f.vip(1), 80), "rr"), f.real(0, 8080))
	}
	for round, f := range []family{ipv4, ipv6, ipv4, ipv6} {
		vip := at(f.vip(1), 80)
		r.flood(3*least, func(i int) testenv.Packet { return testenv.TCP(at(f.clientAddr(i), 2000), vip, "S") })
		// Of IPv6 an entry takes the room of two, and each CPU keeps a block of the other family.
		want := least - blockEntries*runtime.NumCPU()
		if f.number == model.IPv6 {
			want /= 2
		}
		if n := r.conns(f.number); n < want {
			t.Errorf("round %d: room for %d connections of %s, want %d at least", round, n, f.name, want)
		}
		r.atLast(time.Minute, "all is over", func() bool { return r.conns() == 0 })
		r.wantClean("all is over")
	}
}

// Connections live as long as their state's timeout, which may be very long, and longer ones
// beside others that end.
func TestLongTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.timeouts(time.Second, bpfobj.LbConnStateTCP_SYN_RECV)
	const most = 31 * 24 * time.Hour
	r.must(r.SetTimeouts(model.Timeouts{TCP: most}))
	r.establish(client1, vip)
	r.flood(100, func(i int) testenv.Packet { return testenv.TCP(nthClient(1000+i), vip, "S") })
	before := r.conn(testenv.TCP(client1, vip, "S"))
	r.atLast(time.Minute, "the others end", func() bool { return r.conns() == 1 })
	if after := r.conn(testenv.TCP(client1, vip, "S")); after != before {
		t.Errorf("the entry is %+v, it was %+v", after, before)
	}
	if left := r.connection(client1).Expires; left > most || left < most-5*time.Minute {
		t.Errorf("it ends in %s, want %s", left, most)
	}
}

// A persistence template ends after its connections.
func TestTemplateExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	s.Flags, s.Timeout = model.Persistent, 5*time.Second
	r.addService(s, 1, 1)
	r.timeouts(5*time.Second, everyState()...)
	first := r.establish("10.10.0.2:1000", vip)
	if again := r.establish("10.10.0.2:1001", vip); again != first {
		t.Errorf("the same client goes to %s and %s", first, again)
	}
	for _, server := range r.status(s.Key).Servers {
		if want := map[bool]uint32{true: 1}[server.AddrPort() == first]; server.Persistent != want {
			t.Errorf("server %s has %d templates, want %d", server.AddrPort(), server.Persistent, want)
		}
	}
	if got := r.leftovers(); got.conns != 3 {
		t.Errorf("%d entries, want 2 connections and their template", got.conns)
	}
	r.atLast(time.Minute, "the connections end", func() bool { return r.leftovers(s.Key).active == 0 })
}

// A template is held for a connection while that lives: one-packet datagrams,
// and packets that no connection came of, do not keep it.
func TestTemplateIsLetGo(t *testing.T) {
	r := newRig(t, small)
	udp := persistent(tcpService("10.20.0.1:53", "rr"))
	udp.Key.Protocol = model.UDP
	udp.Flags |= model.OnePacket
	r.must(r.AddService(udp), r.AddServer(udp.Key, realServer(0, 1)))
	for range 3 {
		r.fromClient(testenv.UDP(client1, "10.20.0.1:53", "x"))
	}
	templates := 0
	for _, e := range r.allEntries() {
		templates++
		if e.Flow.Template != 1 || e.Fwmark != 0 { // controlled lies in the same place
			t.Errorf("%+v: held by %d connections", e.Flow, e.Fwmark)
		}
	}
	if templates != 1 {
		t.Errorf("%d templates, want 1", templates)
	}
}
