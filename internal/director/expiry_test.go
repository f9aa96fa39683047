// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

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
type leftovers struct{ conns, reverse, active, inactive int }

func (r *rig) leftovers(keys ...model.ServiceKey) (l leftovers) {
	r.Helper()
	l.conns = r.entries(r.maps.Conns4) + r.entries(r.maps.Conns6)
	l.reverse = r.entries(r.maps.Reverse4) + r.entries(r.maps.Reverse6)
	for _, k := range keys {
		for _, s := range r.status(k).Servers {
			l.active += int(s.Active)
			l.inactive += int(s.Inactive)
		}
	}
	return l
}

// timerEntries counts the timer entries in use by their marks. The wheel moves entries from one list
// to another, so a count along its lists would count some of them twice.
func (r *rig) timerEntries() (n int) {
	r.Helper()
	reader := auditReader{d: r.Director, ctx: r.Context()}
	count := func(family model.Family, m *ebpf.Map, unused bpfobj.LbFlow) {
		r.must(reader.eachEntry(&auditFamily{family: family}, entryPair*m.MaxEntries(), func(_, _ uint32, flow *bpfobj.LbFlow) {
			if *flow != unused && flow.Template != entryFree {
				n++
			}
		}))
	}
	count(model.IPv4, r.maps.TimerEntries4, fromFlow4(bpfobj.LbFlow4{}))
	count(model.IPv6, r.maps.TimerEntries6, bpfobj.LbFlow{})
	return n
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

// A connection makes another timer entry with the clock only to end much
// earlier, and who uses its flow again takes that over. None outlasts its time.
func TestTimerEntries(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	want := func(what string, n int) {
		t.Helper()
		if got := r.timerEntries(); got != n {
			t.Errorf("%s: %d timer entries, want %d", what, got, n)
		}
	}
	r.timeouts(9*time.Second, bpfobj.LbConnStateTCP_SYN_RECV)
	r.syn(client1, vip)
	want("begun", 1)
	r.walk(client1, vip, server0, "s:SA c:A")
	want("longer", 1)
	r.timeouts(4*time.Second, bpfobj.LbConnStateTCP_CLOSE)
	r.walk(client1, vip, server0, "c:R")
	want("much shorter", 2)
	r.walk(client1, vip, server0, "c:S")
	want("begun again", 2)
	r.walk(client1, vip, server0, "c:A c:R")
	want("much shorter again", 2)
	r.atLast(time.Minute, "the connection ends", func() bool { return r.entries(r.maps.Conns4) == 0 })
	r.atLast(time.Minute, "the time of every timer entry is over", func() bool { return r.timerEntries() == 0 })
}

// One client that uses the same port over and over fills no table.
func TestPortReuseFillsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: 256})
	r.addService(tcpService(vip, "rr"), 1)
	for i := range 2000 {
		if got := r.fromClient(testenv.TCP(client1, vip, "S")); got.verdict != redirect {
			t.Fatalf("the SYN of connection %d: %s, with %d connections and %d timer entries in the tables",
				i+1, got.verdict, r.entries(r.maps.Conns4), r.timerEntries())
		}
		r.fromClient(testenv.TCP(client1, vip, "R").From(client1))
		r.fromServer(testenv.TCP(server0, client1, "R"))
	}
}

// A full table refuses connections and loses none; when some end it has room.
func TestFullTable(t *testing.T) {
	t.Parallel()
	const room = 256
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: room})
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.timeouts(10*time.Second, everyState()...)
	got := r.reasonsOf(func() {
		r.flood(3*room, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	})
	if got["drop table full"] != 2*room || len(got) != 1 {
		t.Errorf("reasons %v, want %d dropped", got, 2*room)
	}
	if got := r.leftovers(s.Key); got != (leftovers{conns: room, active: room}) {
		t.Errorf("%+v, want %d, all active", got, room)
	}
	r.atLast(time.Minute, "all is over", func() bool { return r.leftovers(s.Key) == leftovers{} })
	r.syn(client1, vip)
}

// Timeouts may reach further than the wheel does: a timer entry is kept again
// and again, and is one all the time.
func TestLongTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.timeouts(5*time.Second, bpfobj.LbConnStateTCP_SYN_RECV)
	r.must(r.SetTimeouts(model.Timeouts{TCP: 2 * time.Hour}))
	r.syn(client1, vip)
	r.walk(client1, vip, server0, "s:SA c:A")
	conn := func() (c bpfobj.LbConn4) {
		r.must(r.maps.Conns4.Lookup(flowOf(testenv.TCP(client1, vip, "S")), &c))
		return c
	}
	due := conn().Due
	r.atLast(time.Minute, "the timer entry is kept", func() bool { return conn().Due != due })
	const reach = 477 // WHEEL_REACH
	if ahead, n := conn().Due-due, r.timerEntries(); ahead < reach-40 || ahead > reach+40 || n != 1 {
		t.Errorf("%d timer entries, in %d ticks, want one in %d", n, ahead, reach)
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
	var key bpfobj.LbFlow4
	var c bpfobj.LbConn4
	templates := 0
	for it := r.maps.Conns4.Iterate(); it.Next(&key, &c); {
		templates++
		if key.Template != 1 || c.Fwmark != 0 { // controlled lies in the same place
			t.Errorf("%+v: held by %d connections", key, c.Fwmark)
		}
	}
	if templates != 1 {
		t.Errorf("%d templates, want 1", templates)
	}
}
