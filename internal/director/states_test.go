// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// walk sends the packets of a connection: "c:S" is a SYN from the client,
// "s:SA" the server's answer.
func (r *rig) walk(client, service, server, steps string) {
	r.Helper()
	for _, step := range strings.Fields(steps) {
		from, flags, _ := strings.Cut(step, ":")
		var got result
		if from == "c" {
			got = r.fromClient(testenv.TCP(client, service, flags))
		} else {
			got = r.fromServer(testenv.TCP(server, client, flags))
		}
		if got.verdict != redirect {
			r.Fatalf("%s of %q: %s", step, steps, got.verdict)
		}
	}
}

// connection finds one in the listing.
func (r *rig) connection(client string) model.Connection {
	r.Helper()
	all, err := collected(r.Director)
	r.must(err)
	i := slices.IndexFunc(all, func(c model.Connection) bool { return c.Client == netip.MustParseAddrPort(client) })
	if i < 0 {
		r.Fatalf("no connection of %s in %v", client, all)
	}
	return all[i]
}

const handshake = "c:S s:SA c:A "

// States follow from the packets as in Linux's tcp_states, and the counts
// from the states: open connections and those that are about to be are
// active, the others inactive (tcp_state_active_table).
var stateWalks = []struct {
	steps, state     string
	active, inactive uint32
}{
	{"c:S", "SYN_RECV", 1, 0},
	{"c:S c:S", "SYN_RECV", 1, 0},
	{"c:S s:SA", "SYN_RECV", 1, 0},
	{"c:S c:R", "SYN_RECV", 1, 0},
	{"c:S s:RA", "CLOSE", 0, 1},
	{"c:S c:F", "TIME_WAIT", 0, 1},
	{handshake, "ESTABLISHED", 1, 0},
	{handshake + "c:PA s:A s:PA c:A", "ESTABLISHED", 1, 0},
	{handshake + "c:S", "ESTABLISHED", 1, 0},
	{handshake + "c:FA", "CLOSE_WAIT", 0, 1},
	{handshake + "c:FA s:A s:PA", "CLOSE_WAIT", 0, 1},
	{handshake + "c:FA s:FA", "TIME_WAIT", 0, 1},
	{handshake + "c:FA s:FA c:A", "TIME_WAIT", 0, 1},
	{handshake + "s:FA", "FIN_WAIT", 0, 1},
	{handshake + "s:FA c:A s:A", "FIN_WAIT", 0, 1},
	{handshake + "s:FA c:FA", "TIME_WAIT", 0, 1},
	{handshake + "s:FA c:FA s:A", "TIME_WAIT", 0, 1},
	{handshake + "c:R", "CLOSE", 0, 1},
	{handshake + "c:FR", "CLOSE", 0, 1},
	{handshake + "s:R", "CLOSE", 0, 1},
	{handshake + "s:RA c:A", "CLOSE", 0, 1},
	{handshake + "c:FA s:FA s:R", "TIME_WAIT", 0, 1},
	{handshake + "c:FA s:FA c:R", "CLOSE", 0, 1},
	{handshake + "c:P", "CLOSE", 0, 1}, // none of the four flags
	{handshake + "c:FA s:FA s:S", "SYN_SENT", 1, 0},
}

func TestTCPStates(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.timeouts(time.Hour, everyState()...) // no connection expires between two counts
	var active, inactive uint32
	for i, c := range stateWalks {
		t.Run(c.steps, func(t *testing.T) {
			r := r.in(t)
			client := nthClient(i)
			r.walk(client, vip, server0, c.steps)
			if got := r.connection(client).State; got != c.state {
				t.Errorf("state %s, want %s", got, c.state)
			}
			active, inactive = active+c.active, inactive+c.inactive
			if a, i := r.counts(s.Key, serverAddr(0)); a != active || i != inactive {
				t.Errorf("%d active and %d inactive, want %d and %d", a, i, active, inactive)
			}
			active, inactive = r.counts(s.Key, serverAddr(0)) // one fault, one report
		})
	}
}

// UDP is never active.
func TestUDPState(t *testing.T) {
	r := newRig(t, small)
	s := service(model.UDP, farVIP, "rr")
	r.addService(s, 1)
	r.fromClient(testenv.UDP(client1, farVIP, "x"))
	r.fromServer(testenv.UDP(server0, client1, "y"))
	if got := r.connection(client1).State; got != "UDP" {
		t.Errorf("state %s", got)
	}
	if a, i := r.counts(s.Key, serverAddr(0)); a != 0 || i != 1 {
		t.Errorf("%d active, %d inactive", a, i)
	}
}

// One-packet services schedule each datagram anew and remember none.
func TestOnePacket(t *testing.T) {
	r := newRig(t, small)
	s := service(model.UDP, farVIP, "rr")
	s.Flags = model.OnePacket
	r.addService(s, 1, 1)
	var got []netip.AddrPort
	for range 4 {
		to, err := r.fromClient(testenv.UDP(client1, farVIP, "x")).server()
		r.must(err)
		got = append(got, to)
	}
	if names(got) != "BABA" {
		t.Errorf("servers %s, want BABA", names(got))
	}
	if a, i := r.counts(s.Key, serverAddr(0)); a != 0 || i != 0 || r.conns() != 0 {
		t.Errorf("%d active, %d inactive, %d connections; want none", a, i, r.conns())
	}
	if n := r.status(s.Key).Stats.Conns; n != 4 {
		t.Errorf("counted %d connections, want 4", n)
	}
}

// A client that comes back from the port of a connection that is over gets a
// new one at once, with whichever server has its turn.
func TestPortReuse(t *testing.T) {
	r := newRig(t, small)
	for i, c := range []struct {
		steps string
		again bool
	}{
		{handshake + "c:FA s:FA c:A", true}, // TIME_WAIT
		{handshake + "c:R", true},           // CLOSE
		{"c:S s:RA", true},
		{handshake + "c:FA", false}, // CLOSE_WAIT
		{handshake + "s:FA", false}, // FIN_WAIT
		{handshake, false},
		{"c:S", false},
	} {
		t.Run(c.steps, func(t *testing.T) {
			r := r.in(t)
			vip, client := nthVIP(i), nthClient(i)
			s := tcpService(vip, "rr")
			r.addService(s, 1, 1)
			r.walk(client, vip, "172.16.0.11:8080", c.steps)
			want, conns := "172.16.0.11:8080", uint64(1)
			if c.again {
				want, conns = server0, 2
			}
			if got := r.syn(client, vip); got.String() != want {
				t.Errorf("SYN goes to %s, want %s", got, want)
			}
			st := r.status(s.Key)
			if st.Stats.Conns != conns {
				t.Errorf("%d connections counted, want %d", st.Stats.Conns, conns)
			}
			n := uint32(0)
			for _, server := range st.Servers {
				n += server.Active + server.Inactive
			}
			if n != 1 || r.conns() != i+1 {
				t.Errorf("%d connections at the servers, %d in the table; want one, and one more", n, r.conns())
			}
		})
	}
}

// The same of any connection whose server was deleted, unless conn_reuse_mode is 0:
// its client has no use for it.
func TestPortReuseAfterDeletion(t *testing.T) {
	all := []string{handshake + "c:FA s:FA c:A", handshake + "c:R", "c:S s:RA", handshake + "c:FA", handshake + "s:FA",
		handshake + "c:FA s:FA", handshake, "c:S", "c:S s:SA"}
	for _, persistence := range []bool{false, true} {
		r := newRig(t, small)
		for i, steps := range all {
			t.Run(fmt.Sprintf("%s/%t", steps, persistence), func(t *testing.T) {
				r := r.in(t)
				vip, client := nthVIP(i), nthClient(i)
				s := tcpService(vip, "rr")
				if persistence {
					s = persistent(s)
				}
				r.addService(s, 1, 1)
				entries := r.conns()
				r.walk(client, vip, "172.16.0.11:8080", steps)
				r.must(r.DeleteServer(s.Key, realServer(1, 1).AddrPort()))
				dropped := func(flags string) {
					t.Helper()
					p := testenv.TCP(client, vip, flags)
					reasons := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(p), p.Frame()) })
					if diff := cmp.Diff(map[string]uint64{"drop server deleted": 1}, reasons); diff != "" {
						t.Errorf("%s: %s", flags, diff)
					}
				}
				r.turn("conn_reuse_mode=0")
				dropped("S")
				r.turn("conn_reuse_mode=1")
				dropped("A")
				// It is told what its packets meet, and of one that is over what the next SYN does.
				over := !persistence && (i < 3 || i == 5)
				if a := r.explain(client, vip); a.Known == over || a.Packet.Outdated != over || a.Connection == nil {
					t.Errorf("explained as %+v", a)
				}
				if got := r.syn(client, vip); got.String() != server0 {
					t.Errorf("SYN goes to %s, want %s", got, server0)
				}
				want := 1
				if persistence { // and two templates: of the deleted server, and of this one
					want = 3
				}
				if got := r.conns() - entries; got != want {
					t.Errorf("%d entries in the table, want %d", got, want)
				}
				r.must(r.AddServer(s.Key, realServer(1, 1)))
				if a, i := r.counts(s.Key, serverAddr(1)); a != 0 || i != 0 {
					t.Errorf("the server is back with %d active and %d inactive connections", a, i)
				}
			})
		}
	}
}

// The listing shows a connection's three ends and when it ends.
func TestConnectionListing(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.establish(client1, vip)
	c := r.connection(client1)
	timeout := defaultTimeouts[bpfobj.LbConnStateTCP_ESTABLISHED]
	if c.Expires > timeout || c.Expires < timeout*9/10 {
		t.Errorf("expires in %s, want %s", c.Expires, timeout)
	}
	c.Expires = 0
	want := model.Connection{Protocol: model.TCP, State: "ESTABLISHED", Client: netip.MustParseAddrPort(client1),
		Virtual: netip.MustParseAddrPort(vip), Server: netip.MustParseAddrPort(server0),
		Service: tcpService(vip, "rr").Key, RealServer: netip.MustParseAddrPort(server0), InPackets: 2}
	if c != want {
		t.Errorf("listed as %v, want %v", c, want)
	}
}

// A listing is whole, however many system calls it takes.
func TestConnectionListingIsWhole(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	const n = 2*connBatch + 100
	r.flood(n, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	all, err := collected(r.Director)
	r.must(err)
	seen := map[netip.AddrPort]bool{}
	for _, c := range all {
		seen[c.Client] = true
	}
	if len(all) != n || len(seen) != n {
		t.Errorf("listed %d connections of %d clients, want %d", len(all), len(seen), n)
	}
}
