// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// replying is a rig with a UDP service whose server answers clients behind routers.
type replying struct {
	*rig
	f       family
	routers []netip.Addr      // beside the rig's own
	macs    map[string]string // of all routers: the hardware address, by the address
}

func newReplying(t testing.TB, f family, routers int) replying {
	a := replying{newRig(t, small), f, nil, map[string]string{f.router: routerMAC}}
	a.serve(service(model.UDP, at(f.vip(vipMasq), 80), "rr"), f.real(0, 8080))
	link := netip.MustParsePrefix("10.9.1.1/24")
	if f.number == model.IPv6 {
		link = netip.MustParsePrefix("fd00:9:1::1/64")
	}
	a.must(a.ns.AddAddresses(clientDev, link))
	via := link.Addr()
	for i := range routers {
		via = via.Next()
		mac := fmt.Sprintf("02:00:00:00:88:%02x", i)
		a.must(a.ns.AddNeighbours(clientDev, mac, via))
		a.routers = append(a.routers, via)
		a.macs[via.String()] = mac
	}
	return a
}

func (a replying) in(t testing.TB) replying {
	a.rig = a.rig.in(t)
	return a
}

// ip runs lines of ip(8), in which A, B, ... are the routers and EXT is the clients' device.
func (a replying) ip(lines string) {
	a.Helper()
	names := []string{"EXT", clientDev}
	for i, via := range a.routers {
		names = append(names, string(rune('A'+i)), via.String())
	}
	for _, line := range strings.Split(lines, "\n") {
		words := strings.Fields(line)
		for i, word := range words {
			if at := slices.Index(names, word); at >= 0 && at%2 == 0 {
				words[i] = names[at+1]
			}
		}
		if words[0] == "rule" && a.f.number == model.IPv6 {
			words = append([]string{"-6"}, words...)
		}
		a.must(a.ns.Do(func() error {
			said, err := exec.Command("ip", words...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ip %s: %s: %w", strings.Join(words, " "), said, err)
			}
			return nil
		}))
	}
}

// asks opens a connection of each client.
func (a replying) asks(clients ...netip.Addr) {
	a.Helper()
	for _, client := range clients {
		if got := a.fromClient(a.request(client)); got.verdict != redirect {
			a.Fatalf("a request of %s: %s", client, got.verdict)
		}
	}
}

func (a replying) request(client netip.Addr) testenv.Packet {
	return testenv.UDP(at(client.String(), 1000), at(a.f.vip(vipMasq), 80), "question")
}

func (a replying) reply(client netip.Addr) testenv.Packet {
	return a.request(client).Turned().From(at(a.f.server(0), 8080)).Payload("answer").DontFragment()
}

// answered is the hardware address of the router that gets a reply; "" if none does.
func (a replying) answered(client netip.Addr) string {
	a.Helper()
	return a.router(a.fromServer(a.reply(client)))
}

// router is the hardware address of the router that gets a packet; "" if none does.
func (a replying) router(got result) string {
	if got.verdict != redirect {
		return ""
	}
	to := net.HardwareAddr(got.frame[:6]).String()
	for _, mac := range a.macs {
		if mac == to {
			return to
		}
	}
	return "" // an error, to the server
}

// kernelHop is the router that the kernel would send to, by its hardware address; "" if none.
func (a replying) kernelHop(client netip.Addr) (mac string) {
	a.Helper()
	_ = a.ns.Do(func() error {
		routes, err := netlink.RouteGet(client.AsSlice())
		if err != nil || len(routes) == 0 {
			return err // blackhole, unreachable or prohibit
		}
		if via, ok := netip.AddrFromSlice(routes[0].Gw); ok {
			mac = a.macs[via.Unmap().String()]
		}
		return nil
	})
	return mac
}

// manyClients are consecutive addresses of clients.
func (f family) manyClients(n int) (clients []netip.Addr) {
	a := netip.MustParseAddr(f.client)
	for range n {
		clients = append(clients, a)
		a = a.Next()
	}
	return clients
}

// Replies to clients behind one router share the cached route.
func TestSharedRoutesOfManyReplies(t *testing.T) {
	requireRouteMTU(t)
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			a := newReplying(t, f, 0)
			clients := f.manyClients(3000)
			a.asks(clients...)
			before := a.cachedRoutes()
			for _, client := range clients {
				if to := a.answered(client); to != routerMAC {
					t.Fatalf("a reply to %s goes to %q, want %s", client, to, routerMAC)
				}
			}
			// One before the length of the block is known, and one of the block.
			if n := a.cachedRoutes() - before; n > 2 {
				t.Errorf("replies to %d clients of one router have %d cached routes, want at most 2", len(clients), n)
			}
		})
	}
}

// around is an address near many others in the upper 64 bits.
func (f family) around(random *rand.Rand) netip.Addr {
	b := netip.MustParseAddr(f.client).AsSlice()
	first, last := 2, 3
	if f.number == model.IPv6 {
		first, last = 4, 7
		b[len(b)-2] = uint8(random.IntN(2))
	}
	for i := first; i <= last; i++ {
		b[i] = uint8(random.Uint32() & random.Uint32())
	}
	b[len(b)-1] |= 2
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// prefixAround is a prefix inside the clients' network.
func (f family) prefixAround(random *rand.Rand) netip.Prefix {
	network, longest := netip.MustParsePrefix(f.clients).Bits(), 32
	if f.number == model.IPv6 {
		longest = 64
		if random.IntN(6) == 0 {
			network, longest = 64, 128
		}
	}
	return netip.PrefixFrom(f.around(random), network+1+random.IntN(longest-network)).Masked()
}

// Blocks of destinations are never larger than the kernel's routes allow: among random nested
// prefixes, which lead to several routers or nowhere, each reply goes where the kernel says, and does
// so after half of the routes are gone.
func TestSharedRoutesOfNestedPrefixes(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			a := newReplying(t, f, 4)
			var routes []*netlink.Route
			clients := map[netip.Addr]bool{}
			for i := range 300 {
				p := f.prefixAround(random)
				clients[f.around(random)] = true
				clients[p.Addr().Next()] = true
				if p.IsSingleIP() {
					clients[p.Addr()] = true
				}
				route := &netlink.Route{Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
				switch {
				case i%10 == 0:
					route.Type = []int{unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT}[random.IntN(3)]
				case i%25 == 1:
					_ = a.ns.AddAddresses(clientDev, hostRoute(f.around(random))) // it may be there already
					continue
				default:
					route.Gw = a.routers[random.IntN(len(a.routers))].AsSlice()
				}
				if a.ns.Do(func() error { return netlink.RouteAdd(route) }) == nil {
					routes = append(routes, route)
				}
			}
			var all []netip.Addr
			for client := range clients {
				all = append(all, client)
			}
			slices.SortFunc(all, netip.Addr.Compare)
			a.asks(all...)
			a.answersAsRouted(random, all)
			for _, i := range random.Perm(len(routes))[:len(routes)/2] {
				a.must(a.ns.Do(func() error { return netlink.RouteDel(routes[i]) }))
			}
			a.answersAsRouted(random, all)
		})
	}
}

// answersAsRouted compares replies in many orders with the kernel's routes.
func (a replying) answersAsRouted(random *rand.Rand, clients []netip.Addr) {
	a.Helper()
	want := map[netip.Addr]string{}
	for _, client := range clients {
		want[client] = a.kernelHop(client)
	}
	time.Sleep(routeLifetime)
	for range 5 {
		random.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
		for _, client := range clients {
			if to := a.answered(client); to != want[client] {
				a.Fatalf("a reply to %s goes to %q, the kernel's to %q", client, to, want[client])
			}
		}
	}
}

// Where a route has several next hops, replies to each client go where the kernel's look-up
// sends them, which chooses by addresses.
func TestSharedRoutesOfSeveralNextHops(t *testing.T) {
	for _, f := range families {
		network := map[family]string{ipv4: "10.10.0.0/18", ipv6: "fd00:10::/64"}[f]
		for name, lines := range map[string]string{
			"multipath":          "route add NET nexthop via A dev EXT nexthop via B dev EXT",
			"group of nexthops":  "nexthop add id 1 via A dev EXT\nnexthop add id 2 via B dev EXT\nnexthop add id 10 group 1/2\nroute add NET nhid 10",
			"in a wider network": "route add NET nexthop via A dev EXT nexthop via B dev EXT\nroute add INNER via C dev EXT",
		} {
			t.Run(f.name+", "+name, func(t *testing.T) {
				a := newReplying(t, f, 3)
				inner := map[family]string{ipv4: "10.10.1.0/24", ipv6: "fd00:10::100/120"}[f]
				a.ip(strings.NewReplacer("NET", network, "INNER", inner).Replace(lines))
				clients := f.manyClients(600)
				a.asks(clients...)
				// One at a time, when nothing is cached.
				want, used := map[netip.Addr]string{}, map[string]bool{}
				for i := 0; i < len(clients); i += 60 {
					time.Sleep(routeLifetime)
					want[clients[i]] = a.answered(clients[i])
				}
				for range 20 {
					for _, client := range clients {
						to := a.answered(client)
						if want[client] == "" {
							want[client] = to
						}
						if to != want[client] {
							t.Fatalf("a reply to %s goes to %q, want %q", client, to, want[client])
						}
						used[to] = true
					}
				}
				if !used[a.macs[a.routers[0].String()]] || !used[a.macs[a.routers[1].String()]] {
					t.Errorf("replies go to %v only", used)
				}
			})
		}
	}
}

// Changes of routes and neighbours are obeyed a moment later, by the clients that they are about and
// by no others of the same block.
func TestCachedRoutesObeyChanges(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			a := newReplying(t, f, 2)
			one, other := f.manyClients(2)[0], f.manyClients(2)[1]
			viaA, viaB := a.macs[a.routers[0].String()], a.macs[a.routers[1].String()]
			a.asks(one, other)
			a.ip("nexthop add id 1 via A dev EXT")
			const moved = "02:00:00:00:99:01"
			a.macs["moved"] = moved
			replace := func(line string) string {
				return strings.NewReplacer("ONE", hostRoute(one).String(), "ALL", f.clients, "ROUTER", f.router).Replace(line)
			}
			for _, c := range []struct{ name, do, undo, one, other string }{
				{"one client's own route", "route add ONE via A", "route del ONE via A", viaA, routerMAC},
				{"one client's own router is replaced", "route add ONE via A\nroute replace ONE via B", "route del ONE via B", viaB, routerMAC},
				{"blackhole", "route add blackhole ONE", "route del blackhole ONE", "", routerMAC},
				{"unreachable", "route add unreachable ONE", "route del unreachable ONE", "", routerMAC},
				{"prohibit", "route add prohibit ONE", "route del prohibit ONE", "", routerMAC},
				{"the director's own address", "address add ONE dev EXT nodad", "address del ONE dev EXT", "", routerMAC},
				{"the route of all is replaced", "route replace ALL via A", "route replace ALL via ROUTER", viaA, viaA},
				{"nexthop object", "route add ONE nhid 1\nnexthop replace id 1 via B dev EXT", "route del ONE\nnexthop replace id 1 via A dev EXT", viaB, routerMAC},
				{"the router's hardware address", "neighbour replace ROUTER lladdr " + moved + " dev EXT nud permanent", "neighbour replace ROUTER lladdr " + routerMAC + " dev EXT nud permanent", moved, moved},
			} {
				t.Run(c.name, func(t *testing.T) {
					a := a.in(t)
					want := func(when, one1, other1 string) {
						t.Helper()
						for range 3 {
							if to := a.answered(one); to != one1 {
								t.Errorf("%s, a reply to the one goes to %q, want %q", when, to, one1)
							}
							if to := a.answered(other); to != other1 {
								t.Errorf("%s, a reply to the other goes to %q, want %q", when, to, other1)
							}
						}
					}
					time.Sleep(routeLifetime)
					want("before", routerMAC, routerMAC)
					a.ip(replace(c.do))
					time.Sleep(routeLifetime)
					want("after the change", c.one, c.other)
					a.ip(replace(c.undo))
					time.Sleep(routeLifetime)
					want("after it was undone", routerMAC, routerMAC)
				})
			}
		})
	}
}

// Rules by the device of arrival and routes of one source's own (IPv6) are obeyed by the replies that
// they are about.
func TestCachedRoutesOfRepliesObeyRules(t *testing.T) {
	for _, f := range families {
		for name, line := range map[string]string{
			"device of arrival": "route add ALL via A table 100\nrule add iif " + serverDev + " lookup 100 priority 100",
			"source":            "route add ALL via A table 100\nrule add from VIP lookup 100 priority 100",
			"source's route":    "route add ALL from VIP via A",
		} {
			if name == "source's route" && f.number == model.IPv4 {
				continue
			}
			t.Run(f.name+", "+name, func(t *testing.T) {
				a := newReplying(t, f, 1)
				second := at(f.vip(vipSamePort), 80)
				a.serve(service(model.UDP, second, "rr"), f.real(1, 80))
				clients := f.manyClients(50)
				a.asks(clients...)
				for _, client := range clients {
					a.fromClient(a.request(client).To(second))
				}
				want := func(first, other string) {
					t.Helper()
					for range 3 {
						for _, client := range clients {
							if to := a.answered(client); to != first {
								t.Fatalf("a reply to %s goes to %q, want %q", client, to, first)
							}
							if to := a.router(a.fromServer(a.request(client).Turned().From(at(f.server(1), 80)))); to != other {
								t.Fatalf("the second service's reply to %s goes to %q, want %q", client, to, other)
							}
						}
					}
				}
				want(routerMAC, routerMAC)
				a.ip(strings.NewReplacer("ALL", f.clients, "VIP", hostRoute(netip.MustParseAddr(f.vip(vipMasq))).String()).Replace(line))
				time.Sleep(routeLifetime)
				viaA := a.macs[a.routers[0].String()]
				switch name {
				case "device of arrival":
					want(viaA, viaA)
				case "source":
					want(viaA, routerMAC)
				default: // Linux leaves out a prefix's route without a source then
					want(viaA, "")
				}
			})
		}
	}
}

// A path MTU that the director was told about one client holds for replies to that client and for no
// others that share the route.
func TestPathMTUOfOneClient(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			const pathMTU = 1300
			a := newReplying(t, f, 0)
			one, other := f.manyClients(2)[0], f.manyClients(2)[1]
			a.asks(one, other)
			goes := func(client netip.Addr, size int) {
				t.Helper()
				p := sized(a.reply(client), size)
				if got := a.fromServer(p); got.verdict != redirect || net.HardwareAddr(got.frame[:6]).String() != routerMAC {
					t.Fatalf("%d bytes to %s: %s", size, client, got.verdict)
				}
			}
			for range 3 {
				goes(one, 1500)
				goes(other, 1500)
			}
			a.tellPathMTU(one, pathMTU)
			time.Sleep(routeLifetime)
			tooBig := f.refusals().tooBig
			tooBig.MTU = pathMTU
			for range 5 {
				goes(other, 1500)
				goes(one, 100)
				goes(one, pathMTU)
				goes(other, pathMTU+1)
				a.forgetAllowances()
				long := byServer(sized(a.reply(one), pathMTU+1))
				f.refusedReply(vipMasq, "too big", tooBig).judge(t, long.frame, a.put(long, 0))
			}
		})
	}
}

// tellPathMTU sends the director an ICMP error about a datagram of its own to a client.
func (a replying) tellPathMTU(client netip.Addr, mtu uint32) {
	a.Helper()
	var local string
	a.must(a.ns.Do(func() error {
		socket, err := net.Dial("udp", at(client.String(), 9))
		if err != nil {
			return err
		}
		a.Cleanup(func() { socket.Close() })
		local = socket.LocalAddr().String()
		_, err = socket.Write([]byte("a datagram"))
		return err
	}))
	quoted := testenv.UDP(local, at(client.String(), 9), "a datagram").DontFragment().Frame()
	kind, code := uint8(3), uint8(4)
	if a.f.number == model.IPv6 {
		kind, code = 2, 0
	}
	own := netip.MustParseAddrPort(local).Addr().String()
	told := testenv.ICMP(a.f.router, own, kind, code).Rest(mtu).Quoting(quoted, len(quoted))
	outside := a.wire(clientDev + "p")
	a.atLast(30*time.Second, "the kernel has the path MTU", func() (known bool) {
		outside.send(told)
		a.must(a.ns.Do(func() error {
			routes, err := netlink.RouteGet(client.AsSlice())
			known = err == nil && len(routes) > 0 && routes[0].MTU == int(mtu)
			return err
		}))
		return known
	})
}
