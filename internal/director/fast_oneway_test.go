// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// oneWay are servers that answer their clients by themselves: by direct routing, and behind
// each kind of tunnel to either family. TCP and UDP port 80 of their virtual addresses, which
// begin at 0, are theirs.
func (r *rig) oneWay(f family) (servers []model.Server) {
	r.Helper()
	servers = append([]model.Server{f.direct(2, 80)}, f.tunnelled()...)
	for i, s := range servers {
		r.serve(tcpService(at(f.vip(i), 80), "rr"), s)
		r.serve(service(model.UDP, at(f.vip(i), 80), "rr"), s)
	}
	return servers
}

// wayTo says how such a server is reached.
func (f family) wayTo(s model.Server) string {
	if s.Forward == model.Route {
		return "direct"
	}
	return fmt.Sprintf("%s %d to %s", f.tunnelHeader(s).Kind, s.TunnelFlags, s.Addr)
}

// room is the longest packet that the way to such a server takes.
func room(s model.Server) int {
	if s.Forward == model.Route {
		return 1500
	}
	return 1500 - overhead(s)
}

// What a client sends on connections by direct routing and tunnels takes the fast path, which
// leaves it as the whole one does and counts it alike.
func TestFastPathOneWay(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			for i, s := range r.oneWay(f) {
				client, vip := at(f.client, 1000+i), at(f.vip(i), 80)
				r.fromClient(testenv.TCP(client, vip, "S"))
				r.fromClient(testenv.TCP(client, vip, "A"))
				r.fromClient(testenv.UDP(client, vip, "first"))
				tcp, udp := testenv.TCP(client, vip, "PA").Payload("GET /"), testenv.UDP(client, vip, "more")
				for name, c := range map[string]struct {
					packet  testenv.Packet
					context skBuff
					fast    bool
				}{
					"data":             {tcp, skBuff{}, true},
					"acknowledgement":  {tcp.Flags("A").Payload(""), skBuff{}, true},
					"odd length":       {tcp.Payload("odd"), skBuff{}, true},
					"DF":               {tcp.DontFragment(), skBuff{}, true},
					"ECN, DSCP":        {tcp.TOS(0x2b), skBuff{}, true},
					"TTL 2":            {tcp.TTL(2), skBuff{}, true},
					"just fits":        {sized(tcp.DontFragment(), room(s)), skBuff{}, true},
					"too big":          {sized(tcp.DontFragment(), room(s)+1), skBuff{}, false},
					"to be cut":        {sized(tcp, room(s)+1), skBuff{}, false},
					"TTL 1":            {tcp.TTL(1), skBuff{}, false},
					"a client anew":    {tcp.Flags("SA"), skBuff{}, false},
					"UDP":              {udp, skBuff{}, true},
					"UDP, no checksum": {udp.NoChecksum(), skBuff{}, true},
					"UDP, no data":     {udp.Payload(""), skBuff{}, true},
					"end":              {tcp.Flags("FA"), skBuff{}, true},
				} {
					if f.number == model.IPv6 && (name == "DF" || name == "to be cut") {
						continue
					}
					t.Run(f.wayTo(s)+", "+name, func(t *testing.T) { r.in(t).alike(t, c.context, c.packet, c.fast) })
				}
				if s.Forward == model.Route {
					// A test's super-packet has no type, without which the kernel lets no tunnel
					// lengthen it.
					segments := skBuff{GSOSize: 1000, GSOSegs: 3}
					t.Run(f.name+", super-packet", func(t *testing.T) {
						r.in(t).alike(t, segments, tcp.Payload(strings.Repeat("x", 3000)), true)
					})
				}
			}
		})
	}
}

// alike sends a packet into the fast path, which is to take it or to leave it untouched. If it is
// taken, the whole path gets it, too, with the same result.
func (r *rig) alike(t *testing.T, context skBuff, p testenv.Packet, taken bool) {
	t.Helper()
	before := r.totals()
	var fast result
	reasons := r.reasonsOf(func() {
		r.withoutWhole(func() { fast = r.send(r.progs.LbClient, context, p.Frame()) })
	})
	if len(reasons) > 0 {
		t.Errorf("reasons counted: %v", reasons)
	}
	byFast := r.totals().Sub(before)
	if !taken {
		wantUntouched(t, pass, fast, p.Frame())
		if byFast != (model.Stats{}) {
			t.Errorf("counted: %+v", byFast)
		}
		return
	}
	if fast.verdict != redirect {
		t.Errorf("%s, want redirect", fast.verdict)
	}
	before = r.totals()
	whole := r.send(r.progs.LbWhole, context, p.Frame())
	if diff := cmp.Diff(withoutID(whole), withoutID(fast), cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("the fast path differs (-whole +fast):\n%s", diff)
	}
	if byWhole := r.totals().Sub(before); byFast != byWhole || byFast.InPkts == 0 {
		t.Errorf("the fast path counts %+v, the whole one %+v", byFast, byWhole)
	}
}

// totals are the totals of all services and servers.
func (r *rig) totals() (all model.Stats) {
	r.Helper()
	services, err := r.Services()
	r.must(err)
	add := func(s model.Stats) {
		all.Conns, all.InPkts, all.OutPkts = all.Conns+s.Conns, all.InPkts+s.InPkts, all.OutPkts+s.OutPkts
		all.InBytes, all.OutBytes = all.InBytes+s.InBytes, all.OutBytes+s.OutBytes
	}
	for _, s := range services {
		add(s.Stats)
		for _, server := range s.Servers {
			add(server.Stats)
		}
	}
	return all
}

// What it leaves, the whole path takes: of a server that is draining, and of a persistent
// service whose packets concern the template.
func TestFastPathLeavesOneWay(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			for i, s := range r.oneWay(f) {
				client, vip := at(f.client, 1000), at(f.vip(i), 80)
				p := testenv.UDP(client, vip, "question")
				r.fromClient(p)
				key := service(model.UDP, vip, "rr").Key
				r.must(r.Drain(key, s.AddrPort(), time.Hour))
				r.alike(t, skBuff{}, p, false)
				if got := r.fromClient(p); got.verdict != redirect {
					t.Errorf("%s, of a draining server: %s", f.wayTo(s), got.verdict)
				}
				vip = at(f.vip(100+i), 80)
				r.serve(persistent(service(model.UDP, vip, "rr")), s)
				p = p.To(vip)
				r.fromClient(p)
				r.alike(t, skBuff{}, p, false)
			}
		})
	}
}

// A connection of which the director sees one direction goes through the same states by the
// fast path as by the whole one; and through those of both directions if a reply was seen.
func TestFastPathFollowsOneWay(t *testing.T) {
	type step struct {
		flags string
		fast  bool
		state string
	}
	for name, steps := range map[string][]step{
		"one direction": {
			{"S", false, "SYN_RECV"}, {"A", true, "ESTABLISHED"}, {"PA", true, "ESTABLISHED"}, {"FA", true, "FIN_WAIT"},
			{"A", true, "FIN_WAIT"}, {"R", true, "CLOSE"},
		},
		"both": {
			{"S", false, "SYN_RECV"}, {"A", true, "ESTABLISHED"}, {"", false, "ESTABLISHED"}, {"PA", true, "ESTABLISHED"},
			{"FA", true, "CLOSE_WAIT"}, {"A", true, "CLOSE_WAIT"},
		},
	} {
		for _, f := range families {
			t.Run(name+", "+f.name, func(t *testing.T) {
				r := newRig(t, small)
				for i, s := range r.oneWay(f) {
					t.Run(f.wayTo(s), func(t *testing.T) {
						r := r.in(t)
						vip, byFast, byWhole := at(f.vip(i), 80), at(f.client, 1000+2*i), at(f.client, 1001+2*i)
						key := model.AddrKey(model.TCP, netip.MustParseAddrPort(vip))
						for _, c := range steps {
							if c.flags == "" { // a reply of the director's own stack
								for _, client := range []string{byFast, byWhole} {
									r.send(r.progs.LbLocal, skBuff{}, testenv.TCP(vip, client, "PA").Frame())
								}
								continue
							}
							if got := r.send(r.progs.LbWhole, skBuff{}, testenv.TCP(byWhole, vip, c.flags).Frame()); got.verdict != redirect {
								t.Fatalf("%s, the whole path: %s", c.flags, got.verdict)
							}
							frame := testenv.TCP(byFast, vip, c.flags).Frame()
							var got result
							r.withoutWhole(func() { got = r.send(r.progs.LbClient, skBuff{}, frame) })
							if taken := got.verdict == redirect; taken != c.fast {
								t.Errorf("%s, the fast path: %s, want it taken: %t", c.flags, got.verdict, c.fast)
							}
							if got.verdict != redirect {
								r.send(r.progs.LbClient, skBuff{}, frame)
							}
							fast, whole := r.connection(byFast), r.connection(byWhole)
							if fast.State != c.state || whole.State != c.state {
								t.Errorf("%s: %s by the fast path and %s by the whole one, want %s", c.flags, fast.State, whole.State, c.state)
							}
							if d := (fast.Expires - whole.Expires).Abs(); d > 5*time.Second {
								t.Errorf("%s: the two end %s apart", c.flags, d)
							}
							if active, inactive := r.counts(key, s.Addr); active+inactive != 2 || active == 1 {
								t.Errorf("%s: %d active and %d inactive, want two of one kind", c.flags, active, inactive)
							}
						}
					})
				}
			})
		}
	}
}
