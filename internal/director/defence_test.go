// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A TCP connection's state by the rules of secure_tcp (tcp_states_dos), where
// the recordings' real clients and servers do not come to.
func TestSecureTCP(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.turn("secure_tcp=3")
	for i, c := range []struct{ steps, state string }{
		{"c:S", "SYN_RECV"},
		{"c:S c:S", "SYN_RECV"},
		{"c:S c:A", "SYN_RECV"},
		{"c:S c:R", "SYN_RECV"},
		{"c:S c:FA", "TIME_WAIT"},
		{"c:S s:A", "ESTABLISHED"},
		{"c:S s:RA", "CLOSE"},
		{"c:S s:SA", "SYNACK"},
		{"c:S s:SA s:SA", "SYNACK"},
		{"c:S s:SA c:S", "SYNACK"},
		{handshake, "SYNACK"},
		{handshake + "c:FA", "SYNACK"},
		{handshake + "c:R", "CLOSE"},
		{handshake + "s:FA", "TIME_WAIT"},
		{handshake + "s:R", "CLOSE"},
		{handshake + "s:A", "ESTABLISHED"},
		{handshake + "s:A c:FA", "CLOSE_WAIT"},
		{handshake + "s:A s:FA", "FIN_WAIT"},
		{handshake + "s:A c:R", "CLOSE"},
	} {
		r.walk(nthClient(i), vip, server0, c.steps)
		if got := r.connection(nthClient(i)).State; got != c.state {
			t.Errorf("%s: state %s, want %s", c.steps, got, c.state)
		}
	}
	// What is half open by one table becomes established by the other.
	const last = 100
	r.walk(nthClient(last), vip, server0, handshake)
	r.turn("secure_tcp=0")
	r.walk(nthClient(last), vip, server0, "c:A")
	if got := r.connection(nthClient(last)).State; got != "ESTABLISHED" {
		t.Errorf("without secure_tcp an ACK makes SYNACK %s", got)
	}
}

// drop_packet drops the first of am_droprate packets that would open
// connections, of all clients, and no others.
func TestDropPacket(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.establish(client1, vip)
	r.turn("drop_packet=3", "am_droprate=4")
	// each packet, by a letter; a question before it foresees what it will be.
	pass := func(n, from int) (all string) {
		for i := range n {
			a := r.explain(nthClient(from+i), vip)
			got := map[string]string{"redirect": "p", "drop": "D"}[r.fromClient(testenv.TCP(nthClient(from+i), vip, "S")).verdict.String()]
			if (a.Packet.Verdict == "drop") != (got == "D") {
				t.Errorf("packet %d: %s was foretold, and %q came", from+i, a.Packet.Verdict, got)
			}
			r.walk(client1, vip, server0, "c:A s:A")
			all += got
		}
		return all
	}
	var got []string
	reasons := r.reasonsOf(func() {
		got = append(got, pass(10, 100))
		r.turn("am_droprate=0")
		got = append(got, pass(3, 200))
		r.turn("am_droprate=1")
		got = append(got, pass(4, 300))
		r.turn("drop_packet=1") // there is room
		got = append(got, pass(3, 400))
	})
	if diff := cmp.Diff([]string{"DpppDpppDp", "ppp", "ppDD", "ppp"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{"drop defence": 5}, reasons); diff != "" {
		t.Error(diff)
	}
}

// left counts connections by the first two numbers of their clients' addresses.
func (r *rig) left() map[string]int {
	r.Helper()
	all, err := collected(r.Director)
	r.must(err)
	n := map[string]int{}
	for _, c := range all {
		n[strings.Join(strings.Split(c.Client.String(), ".")[:2], ".")]++
	}
	return n
}

// from makes the i-th client of a group.
func from(group string, i int) string { return strings.Replace(nthClient(i), "10.10", group, 1) }

// Each second drop_entry ends one in 32 of the half-open connections, less of
// the idle ones, none of those at work. What belongs to them goes along.
func TestDropEntry(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	tcp, udp := tcpService(vip, "rr"), service(model.UDP, vip, "rr")
	r.addService(tcp, 1)
	r.addService(udp, 1)
	const n = 3000
	group := func(name string, n int, packet func(client string) testenv.Packet) {
		r.flood(n, func(i int) testenv.Packet { return packet(from(name, i)) })
	}
	syn := func(c string) testenv.Packet { return testenv.TCP(c, vip, "S") }
	ack := func(c string) testenv.Packet { return testenv.TCP(c, vip, "A") }
	datagram := func(c string) testenv.Packet { return testenv.UDP(c, vip, "x") }
	// Idle is by the timeout: what comes now has been idle when that grows.
	r.timeouts(100*time.Second, bpfobj.LbConnStateCONN_UDP)
	group("10.11", n, datagram)
	for range 3 {
		group("10.12", n, datagram)
	}
	for range 9 {
		group("10.13", n/4, datagram)
	}
	r.timeouts(300*time.Second, bpfobj.LbConnStateCONN_UDP)
	group("10.14", n, syn)
	group("10.15", n/4, syn)
	group("10.15", n/4, ack)      // established
	group("10.16", n/4, datagram) // not idle
	begin, stalls := time.Now(), testenv.WatchStalls(t)
	r.turn("drop_entry=3")
	var left map[string]int
	var d time.Duration
	r.atLast(time.Minute, "a fifth of the half-open connections ended", func() bool {
		d = time.Since(begin)
		left = r.left()
		return left["10.14"] < n*8/10
	})
	// 7 s; a machine that is busy is late, never early.
	if time.Since(begin) < 5*time.Second || d > 12*time.Second+3*stalls.Longest() {
		t.Errorf("a fifth of the half-open connections ended after %s, beside stalls of %v", d, stalls.Longest())
	}
	for _, c := range []struct {
		group    string
		min, max int
	}{
		{"10.11", n * 7 / 10, n * 9 / 10},     // one packet: as half-open ones
		{"10.12", n * 88 / 100, n * 97 / 100}, // three packets: a third as many
		{"10.13", n / 4, n / 4},
		{"10.15", n / 4, n / 4},
		{"10.16", n / 4, n / 4},
	} {
		if got := left[c.group]; got < c.min || got > c.max {
			t.Errorf("group %s: %d are left, want %d to %d", c.group, got, c.min, c.max)
		}
	}
	r.turn("drop_entry=0")
	time.Sleep(1100 * time.Millisecond) // a beat later at most
	all := 0
	for _, n := range r.left() {
		all += n
	}
	got := r.leftovers(tcp.Key, udp.Key)
	if want := (leftovers{conns: all, active: r.left()["10.14"] + n/4, inactive: all - r.left()["10.14"] - n/4}); got != want {
		t.Errorf("left: %+v, want %+v", got, want)
	}
}

// A template goes with the last of its half-open connections, unless one was
// real.
func TestDropEntryTemplates(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	r.addService(s, 1)
	const n = 640
	r.flood(n, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	r.establish("10.11.0.1:1000", vip)
	templates := func() (templates, conns int) {
		all, err := collected(r.Director)
		r.must(err)
		for _, c := range all {
			if c.Client.Port() == 0 {
				templates++
			} else {
				conns++
			}
		}
		return templates, conns
	}
	if templates, conns := templates(); templates != n+1 || conns != n+1 {
		t.Fatalf("%d templates and %d connections, want %d", templates, conns, n+1)
	}
	r.turn("drop_entry=3")
	r.atLast(time.Minute, "a tenth of the connections ended", func() bool {
		_, conns := templates()
		return conns < n*9/10
	})
	r.turn("drop_entry=0")
	time.Sleep(1100 * time.Millisecond)
	if templates, conns := templates(); templates != conns {
		t.Errorf("%d templates of %d connections are left", templates, conns)
	}
	all, err := collected(r.Director)
	r.must(err)
	for _, want := range []string{"ASSURED", "ESTABLISHED"} {
		if !slices.ContainsFunc(all, func(c model.Connection) bool { return c.State == want }) {
			t.Errorf("the %s one ended", want)
		}
	}
	if st := r.status(s.Key).Servers[0]; int(st.Persistent) != len(all)/2 || int(st.Active) != len(all)/2 {
		t.Errorf("counted: %d persistent, %d active, want %d", st.Persistent, st.Active, len(all)/2)
	}
}

// mode is how a setting is shown.
func (r *rig) mode(name string) uint32 {
	r.Helper()
	all, err := r.Settings()
	r.must(err)
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		r.Fatalf("no setting %s", name)
	}
	return all[i].Value
}

// An automatic defence works while there is no room for connections, and for
// two seconds more; meanwhile it is shown as 2.
func TestAutomaticDefence(t *testing.T) {
	t.Parallel()
	const room = 64
	r := newRig(t, Sizes{Services: 16, Servers: 16, Connections: room})
	r.addService(tcpService(vip, "rr"), 1)
	modes := func() [3]uint32 {
		return [3]uint32{r.mode("drop_entry"), r.mode("drop_packet"), r.mode("secure_tcp")}
	}
	r.turn("drop_entry=2", "secure_tcp=1", "drop_packet=0")
	if got := modes(); got != [3]uint32{1, 0, 1} {
		t.Fatalf("with room: %v", got)
	}
	fill := func() {
		r.flood(8*room, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	}
	// The defence ends connections sixteen times a second, so a full table may soon have room.
	r.atLast(time.Minute, "the table is full, and the defences work", func() bool {
		fill()
		return r.freeLines(model.IPv4) == 0 && modes() == [3]uint32{2, 0, 2}
	})
	r.atLast(time.Minute, "half-open connections ended", func() bool {
		if r.freeLines(model.IPv4) > 0 {
			return true
		}
		fill()
		return false
	})
	r.atLast(time.Minute, "the defences rested", func() bool { return modes() == [3]uint32{1, 0, 1} })
}

// What settings are taken, what is said of others.
func TestParseSetting(t *testing.T) {
	for _, c := range []struct {
		text  string
		value uint32
		want  string // of the error
	}{
		{"drop_entry=3", 3, ""},
		{"net.ipv4.vs.drop_packet = 2", 1, ""}, // as Linux with memory enough
		{"secure_tcp=1", 1, ""},
		{"syn_defence=auto", 1, ""},
		{"sync_retries=2", 2, ""}, // its limit is 3, too, but it is no mode
		{"am_droprate=2", 2, ""},
		{"am_droprate=2147483647", 1<<31 - 1, ""},
		{"drop_entry=4", 0, `setting drop_entry: "4" is not a number from 0 to 3`},
		{"drop_packet=-1", 0, `setting drop_packet: "-1" is not a number from 0 to 3`},
		{"secure_tcp=on", 0, `setting secure_tcp: "on" is not a number from 0 to 3`},
		{"secure_tcp=", 0, `setting secure_tcp: "" is not a number from 0 to 3`},
		{"am_droprate=2147483648", 0, `setting am_droprate: "2147483648" is not a number from 0 to 2147483647`},
		{"am_droprate=-1", 0, "is not a number from 0 to 2147483647"},
		{"amemthresh=1024", 0, "setting amemthresh: BPF programs cannot ask for the free memory"},
		{"sync_retries=always", 0, `setting sync_retries: "always" is not a number from 0 to 3`},
		{"drop_entry", 0, `"drop_entry" is not of the form NAME=VALUE`},
	} {
		s, err := ParseSetting(c.text)
		switch {
		case c.want == "" && (err != nil || s.Value != c.value):
			t.Errorf("%s: %v, %v", c.text, s, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want one line with %q", c.text, err, c.want)
		}
	}
}
