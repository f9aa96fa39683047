// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"imbang/internal/host"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

const narrowMTU = 1400

// requireRouteMTU skips a test on kernels whose structures programs cannot read.
func requireRouteMTU(t testing.TB) {
	t.Helper()
	if !kernelTells() {
		t.Skip("programs of this kernel cannot read the routing table (Linux 6.2): only locked MTUs count")
	}
}

// The MTU of a route is obeyed as that of a device is, in either family and direction;
// inside a tunnel there is as much less room as its headers take.
func TestRouteMTU(t *testing.T) {
	for _, f := range families {
		for _, locked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, locked %t", f.name, locked), func(t *testing.T) {
				if !locked {
					requireRouteMTU(t)
				}
				w := newWorld(t, small)
				for _, i := range []int{0, 2, 7} {
					w.narrow(f.serverAddr(i), locked)
				}
				w.must(w.ns.AddRoutes(host.Route{Dst: hostRoute(netip.MustParseAddr(f.client)), Via: netip.MustParseAddr(f.router), MTU: narrowMTU, MTULocked: locked}))
				w.check(t, narrowTable(f))
			})
		}
	}
}

// narrowTable is about the longest packets of routes that are narrower than their devices.
func narrowTable(f family) (table []golden) {
	add := func(name string, p testenv.Packet, server *model.Server) {
		room := narrowMTU
		if server != nil {
			room -= overhead(*server)
		}
		tooBig := f.refusals().tooBig
		tooBig.MTU = uint32(room)
		segments := sent{frame: p.Payload(strings.Repeat("x", 3000)).Frame(), context: skBuff{GSOSize: uint32(narrowMTU - length(p.Payload(""))), GSOSegs: 3}}
		long := segments
		long.context.GSOSize++
		table = append(table, golden{name + ", just fits", nil, byClient(sized(p, room)), leaves},
			golden{name + ", too big", nil, byClient(sized(p, room+1)), refused("too big", tooBig)})
		if server == nil {
			table = append(table, golden{name + ", segments that fit", nil, segments, leaves})
		} else if server.TunnelType == model.GRE && server.TunnelFlags != 0 {
			tooBig.MTU += 4 // a super-packet has no checksum
		}
		// A tunnel makes segments shorter by what it adds: those that just fit can be longer.
		table = append(table, golden{name + ", segments too big", nil, long, refused("too big", tooBig)})
	}
	for name, vip := range map[string]int{"masquerading": vipMasq, "direct routing": vipDirect} {
		add(name, testenv.TCP(at(f.client, 1000), at(f.vip(vip), 80), "S").DontFragment(), nil)
	}
	for i, s := range f.tunnelled()[:len(tunnels)] {
		add(fmt.Sprintf("tunnel %d %d", s.TunnelType, s.TunnelFlags), testenv.TCP(at(f.client, 1000), at(f.vip(vipTunnel+i), 80), "S").DontFragment(), &s)
	}
	request := testenv.UDP(at(f.client, 1001), at(f.vip(vipMasq), 80), "question")
	answer := request.Turned().From(at(f.server(0), 8080)).DontFragment()
	tooBig := f.refusals().tooBig
	tooBig.MTU = narrowMTU
	return append(table, golden{"an answer just fits", []sent{byClient(request)}, byServer(sized(answer, narrowMTU)), leaves},
		golden{"an answer too big", []sent{byClient(request)}, byServer(sized(answer, narrowMTU+1)), f.refusedReply(vipMasq, "too big", tooBig)})
}

// leaves expects a packet to be sent on, however.
var leaves = outcome{"", func(t *testing.T, _ []byte, got result) {
	t.Helper()
	if got.verdict != redirect {
		t.Errorf("%s, want redirect", got.verdict)
	}
}}

func hostRoute(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// narrow gives a server a route of its own.
func (r *rig) narrow(server netip.Addr, locked bool) {
	r.Helper()
	r.must(r.ns.AddRoutes(host.Route{Dst: hostRoute(server), Dev: serverDev, MTU: narrowMTU, MTULocked: locked}))
}

// A client gets the same error about a narrow route as when the director only forwards.
func TestRouteMTUAsForwarded(t *testing.T) {
	requireRouteMTU(t)
	c := newCrossing(t, 0)
	for _, p := range shores {
		t.Run(p.name, func(t *testing.T) {
			c := crossing{c.in(t), c.client, c.router, c.server}
			c.serve(service(model.UDP, at(p.vip, 9), "rr"), model.Server{Addr: netip.MustParseAddr(p.server), Port: 9, Weight: 1})
			client := c.socket(c.client, at(p.client, 4000))
			route := host.Route{Dst: hostRoute(netip.MustParseAddr(p.server)), Via: netip.MustParseAddr(p.routerDir), MTU: narrowMTU}
			c.must(c.ns.AddRoutes(route))
			plain, balanced := c.ask(client, at(p.server, 9), 1468, 64), c.ask(client, at(p.vip, 9), 1468, 64)
			balanced.by, plain.by = netip.Addr{}, netip.Addr{} // of the address that the packet was for, as of Linux's IPVS
			if balanced != plain || plain.mtu != narrowMTU {
				t.Errorf("balanced: %s; forwarded: %s", balanced, plain)
			}
		})
	}
}

// The route of many addresses is found in a table of random prefixes as the kernel finds
// it: with its MTU, or with none.
func TestRouteMTUOfManyPrefixes(t *testing.T) {
	requireRouteMTU(t)
	for _, ruled := range []bool{false, true} {
		for _, f := range families {
			t.Run(fmt.Sprintf("%s, rules %t", f.name, ruled), func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				random := rand.New(rand.NewPCG(seed, 0))
				r := newRig(t, small)
				r.serve(service(model.UDP, at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
				if ruled {
					rule := netlink.NewRule()
					rule.Family, rule.Table, rule.Mark, rule.Priority = f.socketFamily(), 100, 77, 100
					r.must(r.ns.Do(func() error { return netlink.RuleAdd(rule) }))
				}
				clients := map[netip.Addr]bool{}
				for i := range 400 {
					a := f.somewhere(random)
					clients[a] = true
					route := host.Route{Dst: netip.PrefixFrom(a, f.bits()-random.IntN(24)).Masked(), Via: netip.MustParseAddr(f.router)}
					if i%3 > 0 {
						route.MTU = 1280 + random.IntN(200)
					}
					_ = r.ns.AddRoutes(route) // a prefix that is there already
				}
				time.Sleep(believed)
				for a := range clients {
					r.comparesMTU(t, f, a)
					r.comparesMTU(t, f, f.somewhere(random))
				}
			})
		}
	}
}

// somewhere is an address near many others.
func (f family) somewhere(random *rand.Rand) netip.Addr {
	b := netip.MustParseAddr(f.client).AsSlice()
	for i := len(b) - 3; i < len(b); i++ {
		b[i] = uint8(random.Uint32() & random.Uint32() & random.Uint32())
	}
	if f.number == model.IPv4 {
		b[1] = 10
	}
	b[len(b)-1] |= 2
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (f family) bits() int { return netip.MustParseAddr(f.client).BitLen() }

// comparesMTU sends a client the longest answer that its route takes, and one that is longer.
func (r *rig) comparesMTU(t *testing.T, f family, client netip.Addr) {
	t.Helper()
	want := 1500
	r.must(r.ns.Do(func() error {
		routes, err := netlink.RouteGetWithOptions(client.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
		if err == nil && len(routes) > 0 && routes[0].MTU > 0 {
			want = routes[0].MTU
		}
		return err
	}))
	request := testenv.UDP(at(client.String(), 1000), at(f.vip(vipMasq), 80), "question")
	if got := r.fromClient(request); got.verdict != redirect {
		t.Fatalf("a request of %s: %s", client, got.verdict)
	}
	answer := request.Turned().From(at(f.server(0), 8080)).DontFragment()
	if got := r.fromServer(sized(answer, want)); got.verdict != redirect || len(got.frame) != 14+want {
		t.Errorf("to %s: %d bytes do not go: %s, %d bytes", client, want, got.verdict, len(got.frame))
	}
	long := byServer(sized(answer, want+1))
	tooBig := f.refusals().tooBig
	tooBig.MTU = uint32(want)
	r.forgetAllowances()
	f.refusedReply(vipMasq, "too big", tooBig).judge(t, long.frame, r.put(long, 0))
}
