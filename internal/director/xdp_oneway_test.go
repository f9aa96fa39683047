// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// withoutXDPMore does something while there is only the fast path of XDP.
func (r *rig) withoutXDPMore(do func()) {
	r.Helper()
	more := uint32(bpfobj.LbEntryENTRY_MORE)
	r.must(r.maps.XdpStages.Delete(more))
	do()
	r.must(r.maps.XdpStages.Put(more, r.progs.LbXdpMore))
}

// wantLeft expects XDP to leave a packet as it is, and not to count it.
func (r *rig) wantLeft(t *testing.T, p testenv.Packet) {
	t.Helper()
	before, frame := r.totals(), p.Frame()
	if got := r.xdp(false, frame); got.verdict != xdpPass || !bytes.Equal(got.frame, frame) {
		t.Errorf("action %d, want the packet as it was to pass", got.verdict)
	}
	if after := r.totals(); after.InPkts != before.InPkts {
		t.Errorf("%d packets counted", after.InPkts-before.InPkts)
	}
}

// XDP puts packets into tunnels as the classifiers do: those that open a connection, and those
// of its fast path. It sums up no packet, so tunnels with a checksum are left.
func TestXDPTunnels(t *testing.T) {
	r := newReplyOwner(t)
	for _, f := range families {
		for i, s := range f.tunnelled() {
			header := f.tunnelHeader(s)
			client, vip := at(f.client, 2000), at(f.vip(vipTunnel+i), 80)
			name := fmt.Sprintf("%s, %s", f.name, f.wayTo(s))
			if header.Checked {
				t.Run(name, func(t *testing.T) {
					p := testenv.UDP(client, vip, "question")
					r.in(t).wantLeft(t, p) // it opened the connection
					r.in(t).wantLeft(t, p)
				})
				continue
			}
			for protocol, p := range map[string]testenv.Packet{"TCP": testenv.TCP(client, vip, "S"), "UDP": testenv.UDP(client, vip, "question")} {
				p = p.DontFragment()
				t.Run(name+", "+protocol+", first", func(t *testing.T) {
					wantWrapped(t, r.in(t).sure(false, p.Frame()), onward(p), header)
				})
				if protocol == "TCP" {
					p = p.Flags("A")
					t.Run(name+", ACK", func(t *testing.T) { wantWrapped(t, r.in(t).sure(false, p.Frame()), onward(p), header) })
					p = p.Flags("PA").Payload("GET /")
				}
				for variant, p := range map[string]testenv.Packet{
					"": p, ", odd length": p.Payload("odd"), ", no data": p.Payload(""), ", ECN, DSCP": p.TOS(0x2b), ", no checksum": p.NoChecksum(),
					", TTL 2": p.TTL(2), ", just fits": sized(p, 1500-overhead(s)),
				} {
					if protocol == "TCP" && variant == ", no checksum" {
						continue
					}
					t.Run(name+", "+protocol+variant, func(t *testing.T) {
						r, want, inner := r.in(t), header, onward(p)
						switch variant {
						case ", ECN, DSCP":
							want.TOS = 0x2a
						case ", TTL 2":
							want.TTL, inner = 1, inner.TTL(1)
						}
						var got result
						r.withoutXDPMore(func() { got = r.sure(false, p.Frame()) })
						wantWrapped(t, got, inner, want)
					})
				}
				t.Run(name+", "+protocol+", too big", func(t *testing.T) { r.in(t).wantLeft(t, sized(p, 1501-overhead(s))) })
			}
		}
	}
}

// wantWrapped compares what XDP sent with a packet behind the header of a tunnel.
func wantWrapped(t *testing.T, got result, inner testenv.Packet, want testenv.Tunnel) {
	t.Helper()
	if got.verdict != xdpRedirect {
		t.Fatalf("action %d, want a redirect", got.verdict)
	}
	wrapped(inner, want).judge(t, nil, result{redirect, got.frame})
}

// The fast path of XDP takes what clients send on connections by direct routing and tunnels, and
// leaves it as the classifiers do.
func TestXDPFastPathOneWay(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newXDPRig(t)
			servers := r.oneWay(f)
			r.ownsRepliesHere()
			for i, s := range servers {
				client, vip := at(f.client, 1000+i), at(f.vip(i), 80)
				r.fromClient(testenv.TCP(client, vip, "S"))
				r.fromClient(testenv.TCP(client, vip, "A"))
				r.fromClient(testenv.UDP(client, vip, "first"))
				for name, p := range map[string]testenv.Packet{
					"TCP": testenv.TCP(client, vip, "PA").Payload("GET /"), "UDP": testenv.UDP(client, vip, "more").TOS(0x2b),
				} {
					t.Run(f.wayTo(s)+", "+name, func(t *testing.T) {
						r := r.in(t)
						if s.TunnelFlags != 0 {
							r.wantLeft(t, p)
							return
						}
						before := r.totals()
						var fast result
						r.withoutXDPMore(func() { fast = r.sure(false, p.Frame()) })
						byXDP := r.totals().Sub(before)
						before = r.totals()
						whole := r.send(r.progs.LbWhole, skBuff{}, p.Frame())
						byTC := r.totals().Sub(before)
						if fast.verdict != xdpRedirect || whole.verdict != redirect {
							t.Fatalf("action %d, verdict %s, want redirects", fast.verdict, whole.verdict)
						}
						if a, b := withoutID(fast).frame, withoutID(whole).frame; !bytes.Equal(a, b) {
							t.Errorf("XDP sends\n%x, the classifiers\n%x", a, b)
						}
						if byXDP != byTC || byXDP.InPkts == 0 {
							t.Errorf("XDP counts %+v, the classifiers %+v", byXDP, byTC)
						}
					})
				}
			}
		})
	}
}

// What clients send on such connections has the states and counts by XDP that it has by the
// classifiers.
func TestXDPCountsOneWayAlike(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newXDPRig(t)
			r.timeouts(time.Hour, everyState()...) // no connection expires between two counts
			servers := r.oneWay(f)
			r.ownsRepliesHere()
			for i, s := range servers {
				key := tcpService(at(f.vip(i), 80), "rr").Key
				for j, flags := range []string{"S", "S A", "S A PA A", "S A FA", "S A FA A", "S A R", "S F", "S S"} {
					t.Run(f.wayTo(s)+", "+flags, func(t *testing.T) {
						r := r.in(t)
						var grown [2]model.Stats
						var active, inactive [2]uint32
						var state [2]string
						for way := range 2 {
							client := at(f.client, 5000+100*i+2*j+way)
							before := r.status(key)
							for step := range strings.FieldsSeq(flags) {
								p := testenv.TCP(client, at(f.vip(i), 80), step)
								if way == 0 {
									r.sureThrough(false, p)
								} else {
									r.put(byClient(p), 0)
								}
							}
							after := r.status(key)
							grown[way] = after.Stats.Sub(before.Stats)
							active[way], inactive[way] = after.Servers[0].Active-before.Servers[0].Active, after.Servers[0].Inactive-before.Servers[0].Inactive
							state[way] = r.connection(client).State
						}
						if grown[0] != grown[1] || active[0] != active[1] || inactive[0] != inactive[1] || state[0] != state[1] {
							t.Errorf("with XDP %+v, %d active, %d inactive, %s; without %+v, %d, %d, %s",
								grown[0], active[0], inactive[0], state[0], grown[1], active[1], inactive[1], state[1])
						}
					})
				}
			}
		})
	}
}
