// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What the fast path takes leaves it as it would have left the whole one; the
// rest goes on to that, and comes to nothing without it.
func TestFastPath(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			web, names, client := at(f.vip(1), 80), at(f.vip(2), 53), at(f.client, 1234)
			one := model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 1}
			r.serve(tcpService(web, "rr"), one)
			r.serve(service(model.UDP, names, "rr"), one)
			server := r.establish(client, web).String()
			r.fromClient(testenv.UDP(client, names, "first"))

			in, out := testenv.TCP(client, web, "A"), testenv.TCP(server, client, "PA").Payload("page")
			for _, c := range []struct {
				name       string
				fromServer bool
				fast       bool
				packet     testenv.Packet
			}{
				{"data", false, true, in.Flags("PA").Payload("GET /")},
				{"answer", true, true, out},
				{"an answer where clients are", false, false, out},
				{"data where servers are", true, true, in},
				{"UDP", false, true, testenv.UDP(client, names, "more")},
				{"UDP answer", true, true, testenv.UDP(server, client, "yes")},
				{"last hop", false, false, in.TTL(1)},
				{"another client", false, false, testenv.TCP(at(f.client, 7), web, "S")},
				{"end", false, true, in.Flags("FA")},
			} {
				t.Run(c.name, func(t *testing.T) {
					program := r.progs.LbClient
					if c.fromServer {
						program = r.progs.LbServer
					}
					var fast result
					r.withoutWhole(func() { fast = r.send(program, skBuff{}, c.packet.Frame()) })
					if !c.fast {
						if fast.verdict != pass {
							t.Errorf("the fast path: %s, want it to leave the packet", fast.verdict)
						}
						return
					}
					whole := r.whole(c.fromServer, c.packet.Frame())
					if diff := cmp.Diff(whole, fast, cmp.AllowUnexported(result{})); diff != "" {
						t.Errorf("the fast path differs (-whole +fast):\n%s", diff)
					}
					if fast.verdict != redirect {
						t.Errorf("%s, want redirect", fast.verdict)
					}
				})
			}
		})
	}
}

// withoutWhole does something while there is only the fast path.
func (r *rig) withoutWhole(do func()) {
	r.Helper()
	whole := uint32(bpfobj.LbEntryENTRY_MORE)
	r.must(r.maps.Stages.Delete(whole))
	do()
	r.must(r.maps.Stages.Put(whole, r.progs.LbWhole))
}

// A connection that the fast path follows goes through the states that the whole
// one gives it, and counts alike.
func TestFastPathFollows(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			s := tcpService(at(f.vip(1), 80), "rr")
			web := at(f.vip(1), 80)
			r.serve(s, model.Server{Addr: f.serverAddr(0), Port: 8080, Weight: 1})
			server, byFast, byWhole := at(f.serverAddr(0).String(), 8080), at(f.client, 1234), at(f.client, 1235)
			for _, c := range []struct {
				name       string
				fromServer bool
				flags      string
				fast       bool
				state      string
			}{
				{"SYN", false, "S", false, "SYN_RECV"},
				{"a client that begins anew", false, "S", false, "SYN_RECV"},
				{"SYN-ACK", true, "SA", true, "SYN_RECV"},
				{"ACK", false, "A", true, "ESTABLISHED"},
				{"data", true, "PA", true, "ESTABLISHED"},
				{"a client that may begin anew", false, "SA", false, "ESTABLISHED"},
				{"first FIN", true, "FA", true, "FIN_WAIT"},
				{"second FIN", false, "FA", true, "TIME_WAIT"},
				{"last ACK", true, "A", true, "TIME_WAIT"},
				{"reset", false, "R", true, "CLOSE"},
			} {
				packet := func(client string) []byte {
					if c.fromServer {
						return testenv.TCP(server, client, c.flags).Frame()
					}
					return testenv.TCP(client, web, c.flags).Frame()
				}
				program := r.progs.LbClient
				if c.fromServer {
					program = r.progs.LbServer
				}
				if got := r.whole(c.fromServer, packet(byWhole)); got.verdict != redirect {
					t.Fatalf("%s, the whole path: %s", c.name, got.verdict)
				}
				var got result
				r.withoutWhole(func() { got = r.send(program, skBuff{}, packet(byFast)) })
				if taken := got.verdict == redirect; taken != c.fast {
					t.Errorf("%s, the fast path: %s, want it taken: %t", c.name, got.verdict, c.fast)
				}
				if got.verdict != redirect {
					r.send(program, skBuff{}, packet(byFast))
				}
				fast, whole := r.connection(byFast), r.connection(byWhole)
				if fast.State != c.state || whole.State != c.state {
					t.Errorf("%s: %s by the fast path and %s by the whole one, want %s", c.name, fast.State, whole.State, c.state)
				}
				if d := (fast.Expires - whole.Expires).Abs(); d > 5*time.Second {
					t.Errorf("%s: the two end %s apart", c.name, d)
				}
				if active, inactive := r.counts(s.Key, f.serverAddr(0)); active+inactive != 2 || active == 1 {
					t.Errorf("%s: %d active and %d inactive, want two of one kind", c.name, active, inactive)
				}
			}
		})
	}
}
