// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// strangerMAC is of a host on the link that is neither a router nor a server.
const strangerMAC = "02:00:00:00:05:05"

// onOneDevice moves the servers' network to the clients' device, which is both then.
func (r *rig) onOneDevice() *rig {
	r.Helper()
	for _, f := range families {
		link := netip.MustParsePrefix(f.serverLink)
		r.must(r.ns.Do(func() error { return host.DeleteAddress(serverDev, link) }), r.ns.AddAddresses(clientDev, link))
		for i := range 32 {
			r.must(r.ns.AddNeighbours(clientDev, serverMAC, f.serverAddr(i)))
		}
	}
	set, err := r.config()
	r.must(err)
	set.OneDevice = 1
	r.must(putConfig(r.maps.Config, set))
	r.server, r.onOne = r.client, true
	return r
}

// onSides runs a test of a director that has a device for each side, or one for both.
func onSides(t *testing.T, xdp bool, test func(t *testing.T, r *rig, f family, one bool)) {
	for _, one := range []bool{false, true} {
		for _, f := range families {
			t.Run(fmt.Sprintf("%s, one device %t", f.name, one), func(t *testing.T) {
				r := newRigWith(t, func(r *rig) { r.openSmall(xdp) })
				if one {
					r.onOneDevice()
				}
				test(t, r, f, one)
			})
		}
	}
}

// fromServerFrame sends a frame in where servers are, as it is.
func (r *rig) fromServerFrame(frame []byte) result {
	r.Helper()
	if r.onOne {
		return r.send(r.progs.LbClient, skBuff{}, frame)
	}
	return r.send(r.progs.LbServer, skBuff{}, frame)
}

// of is a packet with the hardware address that sent it.
func of(mac string, p testenv.Packet) testenv.Packet { return p.MACs(mac, testenv.DirectorMAC) }

// claim is a packet that says that it is a server's.
type claim struct {
	name   string
	packet testenv.Packet
}

// claims are packets of a server for a client's connection of each protocol, the reset last.
func (f family) claims(server, client, vip string) (all []claim) {
	request := testenv.TCP(client, vip, "A")
	errors, _ := f.messages()
	for _, m := range errors {
		for _, from := range []string{f.server(0), f.inner} {
			p := m.between(from, f.client).Quoting(onward(request.To(server)).Frame(), 1000)
			all = append(all, claim{fmt.Sprintf("ICMP, %s, of %s", m.name, from), p})
		}
	}
	all = append(all, claim{"UDP", testenv.UDP(server, client, "answer")},
		claim{"SCTP", testenv.SCTP(server, client, testenv.SCTPInitAck)}, claim{"SCTP ABORT", testenv.SCTP(server, client, testenv.SCTPAbort)})
	for _, flags := range []string{"A", "PA", "SA", "FA", "RA", "R"} {
		all = append(all, claim{"TCP " + flags, testenv.TCP(server, client, flags)})
	}
	return all
}

// opened makes a connection of each protocol to a service.
func (r *rig) opened(f family, server, client, vip string) {
	r.Helper()
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		at := netip.MustParseAddrPort(server)
		r.serve(service(p, vip, "rr"), model.Server{Addr: at.Addr(), Port: at.Port(), Weight: 1})
	}
	r.fromClient(testenv.UDP(client, vip, "question"))
	r.fromClient(testenv.SCTP(client, vip, testenv.SCTPInit))
	r.fromClient(testenv.TCP(client, vip, "S"))
	r.fromServer(testenv.TCP(server, client, "SA"))
	r.fromClient(testenv.TCP(client, vip, "A"))
}

// states are those of all connections, and how many are unproven of each service.
func (r *rig) states() map[string]string {
	r.Helper()
	all, err := collected(r.Director)
	r.must(err)
	states := map[string]string{}
	for _, c := range all {
		states[fmt.Sprint(c.Protocol, c.Client)] = c.State
		states[c.Service.String()] = fmt.Sprint(r.unprovenOf(c.Service), " unproven")
	}
	return states
}

// wantAstray expects a frame that came in where clients are to be dropped as it is.
func wantAstray(t *testing.T, r *rig, frame []byte) {
	t.Helper()
	reasons := r.reasonsOf(func() { wantUntouched(t, drop, r.send(r.progs.LbClient, skBuff{}, frame), frame) })
	if diff := cmp.Diff(map[string]uint64{"drop reverse path": 1}, reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// wantReply expects a server's packet to go to the client in the service's name.
func wantReply(t *testing.T, got result, vip string) {
	t.Helper()
	if got.verdict != redirect {
		t.Errorf("%s, want redirect", got.verdict)
		return
	}
	src, _ := addresses(got.frame)
	if want := netip.MustParseAddrPort(vip).Addr(); src != want {
		t.Errorf("it comes from %v, want %s", src, want)
	}
}

// What a client sends in a server's name is dropped and changes nothing; the same packets
// of the server go on. On one device the next hop's hardware address distinguishes them.
func TestForgedReplies(t *testing.T) {
	onSides(t, false, func(t *testing.T, r *rig, f family, one bool) {
		server, client, vip := at(f.server(0), 8080), at(f.client, 2000), at(f.vip(vipMasq), 80)
		r.opened(f, server, client, vip)
		r.forgetAllowances()
		before := r.states()
		for _, c := range f.claims(server, client, vip) {
			t.Run(c.name, func(t *testing.T) {
				r := r.in(t)
				for _, mac := range []string{routerMAC, strangerMAC} {
					wantAstray(t, r, of(mac, c.packet).Frame())
				}
				if diff := cmp.Diff(before, r.states()); diff != "" {
					t.Errorf("the connections changed (-before +after):\n%s", diff)
				}
				wantReply(t, r.fromServer(c.packet), vip)
				before = r.states()
			})
		}
	})
}

// XDP leaves what a client sends in a server's name to the classifiers, and takes the server's.
func TestXDPForgedReplies(t *testing.T) {
	onSides(t, true, func(t *testing.T, r *rig, f family, one bool) {
		to := serverDev
		if one {
			to = clientDev
		}
		r.must(r.ns.Do(func() error { return r.pretendXDP(clientDev, to) }))
		server, client, vip := at(f.server(0), 8080), at(f.client, 2000), at(f.vip(vipMasq), 80)
		r.opened(f, server, client, vip)
		before := r.states()
		for _, c := range f.claims(server, client, vip) {
			if !strings.HasPrefix(c.name, "TCP") && c.name != "UDP" {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				r := r.in(t)
				for _, mac := range []string{routerMAC, strangerMAC} {
					frame := of(mac, c.packet).Frame()
					reasons := r.reasonsOf(func() { wantUntouched(t, xdpPass, r.xdp(false, frame), frame) })
					if len(reasons) > 0 {
						t.Errorf("XDP counted %v", reasons)
					}
					wantAstray(t, r, frame)
				}
				if diff := cmp.Diff(before, r.states()); diff != "" {
					t.Errorf("the connections changed (-before +after):\n%s", diff)
				}
				if got := r.sure(!one, of(serverMAC, c.packet).Frame()); got.verdict != xdpRedirect {
					t.Errorf("the server's: action %d, want redirect", got.verdict)
				}
				before = r.states()
			})
		}
	})
}

// A later fragment is its server's as the first one is.
func TestForgedFragment(t *testing.T) {
	onSides(t, false, func(t *testing.T, r *rig, f family, one bool) {
		server, client, vip := at(f.server(0), 8080), at(f.client, 2000), at(f.vip(vipMasq), 80)
		r.opened(f, server, client, vip)
		p := testenv.UDP(server, client, strings.Repeat("answer", 40)).ID(77)
		pieces, forged := of(serverMAC, p).Fragments(128), of(routerMAC, p).Fragments(128)
		wantAstray(t, r, forged[0])
		wantReply(t, r.fromServerFrame(pieces[0]), vip)
		wantAstray(t, r, forged[1])
		wantReply(t, r.fromServerFrame(pieces[1]), vip)
	})
}

// On a device of both, replies are on the fast path once their sender was found right, until
// the next hop has another hardware address.
func TestRepliesOnOneDevice(t *testing.T) {
	for _, f := range families {
		for _, marked := range []bool{false, true} { // that have an entry of their own
			t.Run(fmt.Sprintf("%s, of a mark %t", f.name, marked), func(t *testing.T) {
				r := newRig(t, small).onOneDevice()
				client, vip := at(f.client, 2000), at(f.vip(vipMasq), 80)
				server := at(f.server(0), 8080)
				context := skBuff{}
				if marked {
					r.serve(f.marked(markMasq), f.real(0, 8080))
					context.Mark = markMasq
				} else {
					r.serve(tcpService(vip, "rr"), f.real(0, 8080))
				}
				r.send(r.progs.LbClient, context, testenv.TCP(client, vip, "S").Frame())
				r.fromServer(testenv.TCP(server, client, "SA"))
				r.send(r.progs.LbClient, context, testenv.TCP(client, vip, "A").Frame())
				reply := testenv.TCP(server, client, "PA").Payload("page")
				// The machine may be busy for longer than a sender is kept.
				fast := func(mac string) bool {
					wantReply(t, r.fromServerFrame(of(mac, reply).Frame()), vip)
					var got result
					r.withoutWhole(func() { got = r.fromServerFrame(of(mac, reply).Frame()) })
					return got.verdict == redirect
				}
				r.atLast(time.Minute, "the fast path takes replies", func() bool { return fast(serverMAC) })
				var got result
				r.withoutWhole(func() { got = r.fromServerFrame(of(routerMAC, reply).Frame()) })
				if got.verdict != pass {
					t.Errorf("a forged one: the fast path: %s, want it to leave the packet", got.verdict)
				}
				wantAstray(t, r, of(routerMAC, reply).Frame())

				r.must(r.ns.AddNeighbours(clientDev, strangerMAC, f.serverAddr(0)))
				time.Sleep(routeLifetime)
				r.atLast(time.Minute, "the fast path takes them", func() bool { return fast(strangerMAC) })
				wantAstray(t, r, of(serverMAC, reply).Frame())
			})
		}
	}
}

// A sender that was found right is not for long, also if no other one comes.
func TestSenderIsForgotten(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small).onOneDevice()
			server, client, vip := at(f.server(0), 8080), at(f.client, 2000), at(f.vip(vipMasq), 80)
			r.opened(f, server, client, vip)
			reply := of(serverMAC, testenv.UDP(server, client, "answer")).Frame()
			wantReply(t, r.fromServerFrame(reply), vip)
			r.must(r.ns.AddNeighbours(clientDev, strangerMAC, f.serverAddr(0)))
			time.Sleep(routeLifetime)
			r.atLast(time.Minute, "the former address is refused", func() bool { return r.fromServerFrame(reply).verdict == drop })
			wantAstray(t, r, reply)
		})
	}
}

// routeTo is the route of one address.
func routeTo(addr string, route host.Route) host.Route {
	route.Dst = hostRoute(netip.MustParseAddr(addr))
	return route
}

// A server beside the clients, and one behind a router there: replies count from the device
// and the next hop that the route leads to. By the servers' device they count whatever the
// route is.
func TestRepliesByTheRouteBack(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			vip := func(n int) string { return at(f.vip(n), 80) }
			beside, behind := at(f.server(5), 8080), at(f.nowhere, 8080)
			for n, server := range map[int]string{1: beside, 2: behind} {
				s := netip.MustParseAddrPort(server)
				r.serve(tcpService(vip(n), "rr"), model.Server{Addr: s.Addr(), Port: s.Port(), Weight: 1})
			}
			// The one beside the clients is the other's router.
			r.must(r.ns.AddRoutes(routeTo(f.server(5), host.Route{Dev: clientDev}), routeTo(f.nowhere, host.Route{Via: f.serverAddr(5)})),
				r.ns.AddNeighbours(clientDev, strangerMAC, f.serverAddr(5)))
			for n, server := range map[int]string{1: beside, 2: behind} {
				t.Run(server, func(t *testing.T) {
					r := r.in(t)
					client := at(f.client, 2000+n)
					r.fromClient(testenv.TCP(client, vip(n), "S"))
					p := testenv.TCP(server, client, "SA")
					wantReply(t, r.send(r.progs.LbClient, skBuff{}, of(strangerMAC, p).Frame()), vip(n))
					wantAstray(t, r, of(routerMAC, p.Flags("R")).Frame())
					wantAstray(t, r, of(serverMAC, p.Flags("R")).Frame())
					wantReply(t, r.fromServer(p.Flags("PA")), vip(n)) // another way back
					r.turn("reply_filter=1")
					wantReply(t, r.send(r.progs.LbClient, skBuff{}, of(routerMAC, p.Flags("PA")).Frame()), vip(n))
					r.turn("reply_filter=2")
				})
			}
		})
	}
}

// Servers behind a router on the device of both have its hardware address.
func TestRepliesBehindARouterOnOneDevice(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small).onOneDevice()
			r.must(r.ns.AddRoutes(routeTo(f.nowhere, host.Route{Via: netip.MustParseAddr(f.inner)})),
				r.ns.AddNeighbours(clientDev, strangerMAC, netip.MustParseAddr(f.inner)))
			server, client, vip := at(f.nowhere, 8080), at(f.client, 2000), at(f.vip(vipMasq), 80)
			r.serve(tcpService(vip, "rr"), model.Server{Addr: netip.MustParseAddr(f.nowhere), Port: 8080, Weight: 1})
			r.fromClient(testenv.TCP(client, vip, "S"))
			p := testenv.TCP(server, client, "SA")
			wantAstray(t, r, of(serverMAC, p).Frame())
			wantAstray(t, r, of(routerMAC, p).Frame())
			wantReply(t, r.fromServerFrame(of(strangerMAC, p).Frame()), vip)
			for _, flags := range []string{"PA", "FA", "R"} {
				wantReply(t, r.fromServerFrame(of(strangerMAC, p.Flags(flags)).Frame()), vip)
			}
		})
	}
}

// While the next hop's hardware address is not known, any counts.
func TestRepliesOfAnUnknownNeighbour(t *testing.T) {
	r := newRig(t, small).onOneDevice()
	s := tcpService(vip, "rr")
	r.must(r.AddService(s), r.AddServer(s.Key, model.Server{Addr: netip.MustParseAddr("172.16.0.200"), Port: 8080, Weight: 1}))
	r.fromClient(testenv.TCP(client1, vip, "S"))
	p := of(strangerMAC, testenv.TCP("172.16.0.200:8080", client1, "SA"))
	wantReply(t, r.fromServerFrame(p.Frame()), vip)
	r.must(r.ns.AddNeighbours(clientDev, serverMAC, netip.MustParseAddr("172.16.0.200")))
	r.atLast(time.Minute, "the address is compared when it is known", func() bool {
		return r.fromServerFrame(p.Flags("PA").Frame()).verdict == drop
	})
}

// reply_filter: what is compared.
func TestReplyFilter(t *testing.T) {
	for _, c := range []struct {
		filter   int
		one      bool
		verdicts [2]verdict // of the router's, of the server's hardware address
	}{
		{0, false, [2]verdict{redirect, redirect}}, {1, false, [2]verdict{drop, drop}}, {2, false, [2]verdict{drop, drop}},
		{0, true, [2]verdict{redirect, redirect}}, {1, true, [2]verdict{redirect, redirect}}, {2, true, [2]verdict{drop, redirect}},
	} {
		t.Run(fmt.Sprintf("reply_filter=%d, one device %t", c.filter, c.one), func(t *testing.T) {
			r := newRig(t, small)
			if c.one {
				r.onOneDevice()
			}
			r.addService(tcpService(vip, "rr"), 1)
			r.establish(client1, vip)
			r.turn(fmt.Sprintf("reply_filter=%d", c.filter))
			for i, mac := range []string{routerMAC, serverMAC} {
				for range 2 { // by the whole path, and by the fast one
					p := of(mac, testenv.TCP(server0, client1, "PA"))
					if got := r.send(r.progs.LbClient, skBuff{}, p.Frame()); got.verdict != c.verdicts[i] {
						t.Errorf("of %s: %s, want %s", mac, got.verdict, c.verdicts[i])
					}
				}
			}
		})
	}
}

// A server of SIP sends first from its own side alone.
func TestForgedCallOfAServer(t *testing.T) {
	for _, one := range []bool{false, true} {
		t.Run(fmt.Sprintf("one device %t", one), func(t *testing.T) {
			r := newRig(t, small)
			if one {
				r.onOneDevice()
			}
			r.addService(sipService(), 1)
			p := testenv.UDP(server0, "10.10.0.9:5060", invite("x@h"))
			for _, mac := range []string{routerMAC, strangerMAC} {
				wantAstray(t, r, of(mac, p).Frame())
			}
			if n := r.tableEntries(0); n != 0 {
				t.Errorf("%d entries, want none", n)
			}
			wantReply(t, r.fromServer(p), sipVIP)
		})
	}
}

// Replies of a server that is the director leave; what comes in with its address is not of it.
func TestForgedLocalReplies(t *testing.T) {
	onSides(t, false, func(t *testing.T, r *rig, f family, one bool) {
		client, vip, server := at(f.client, 2000), at(f.vip(vipMasq), 80), at(f.own().String(), 8080)
		r.serve(tcpService(vip, "rr"), model.Server{Addr: f.own(), Port: 8080, Weight: 1})
		r.fromClient(testenv.TCP(client, vip, "S"))
		p := testenv.TCP(server, client, "SA")
		for _, mac := range []string{routerMAC, strangerMAC, serverMAC} {
			wantAstray(t, r, of(mac, p.Flags("R")).Frame())
		}
		goesOn("", p.From(vip)).judge(t, nil, r.send(r.progs.LbLocal, skBuff{}, p.Frame()))
		if got := r.connection(client).State; got != "SYN_RECV" {
			t.Error(got)
		}
	})
}

// Hairpins on a device of both: the server's own replies count.
func TestForgedHairpinReplies(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small).onOneDevice()
			r.serve(tcpService(at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
			r.turn("hairpin=1")
			client, vip := at(f.server(20), 40000), at(f.vip(vipMasq), 80)
			director, _, err := testenv.Ends(r.fromServer(testenv.TCP(client, vip, "S")).frame)
			r.must(err)
			if director.Addr() != f.own() {
				t.Fatalf("the server sees %s, want the director", director)
			}
			p := testenv.TCP(at(f.server(0), 8080), director.String(), "SA")
			wantAstray(t, r, of(routerMAC, p.Flags("R")).Frame())
			wantReply(t, r.fromServer(p), vip)
			if got := r.connection(client).State; got != "SYN_RECV" {
				t.Error(got)
			}
		})
	}
}

// Replies that another director hands over have its hardware address: they count if it has
// the virtual address, or is known. A forged one is not handed over.
func TestRepliesHandedOver(t *testing.T) {
	r := newRig(t, small).onOneDevice()
	r.addService(tcpService(vip, "rr"), 1)
	r.establish(client1, vip)
	f := r.failover()
	handed := of(peerMAC, testenv.TCP(server0, client1, "PA")).Frame()
	wantAstray(t, r, handed)
	r.must(f.Guard(map[netip.Addr]uint32{netip.MustParseAddrPort(vip).Addr(): 0}))
	wantReply(t, r.fromServerFrame(handed), vip)
	r.must(f.Renew(0, in(time.Hour)))
	wantAstray(t, r, handed)
	r.must(f.Peers(linkAddress(r.client, peerMAC)))
	wantReply(t, r.fromServerFrame(handed), vip)
	r.must(f.Peers())

	r.must(f.Hand(linkAddress(r.client, peerMAC), in(time.Hour)))
	unknown := testenv.TCP(server0, "10.10.0.9:9", "A")
	wantAstray(t, r, of(routerMAC, unknown).Frame())
	reaches(t, r.fromServer(unknown), unknown)
}

// An error about a tunnel comes from the side that the tunnel leads to.
func TestForgedTunnelErrors(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			vip := at(f.vip(vipTunnel), 80)
			r.serve(tcpService(vip, "rr"), f.tunnelled()[0])
			p := testenv.TCP(at(f.client, 2000), vip, "PA").Payload(strings.Repeat("x", 1350))
			r.fromClient(p.Flags("S").Payload(""))
			outer := r.fromClient(p.DontFragment()).frame
			kind, code := uint8(3), uint8(4)
			if f.number == model.IPv6 {
				kind, code = 2, 0
			}
			in := testenv.ICMP(f.server(7), f.own().String(), kind, code).Rest(1380).Quoting(outer, 1000)
			r.forgetAllowances()
			wantAstray(t, r, of(routerMAC, in).Frame())
			if got := r.fromServer(in); got.verdict != redirect {
				t.Errorf("the server's: %s, want redirect", got.verdict)
			}
		})
	}
}
