// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
				{"end", false, false, in.Flags("FA")},
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
					whole := r.send(r.progs.LbWhole, skBuff{}, c.packet.Frame())
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
	whole := uint32(0)
	r.must(r.maps.Stages.Delete(whole))
	do()
	r.must(r.maps.Stages.Put(whole, r.progs.LbWhole))
}
