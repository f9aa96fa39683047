// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// believed is longer than routes are cached for.
const believed = 30 * time.Millisecond

// By default all sources share the cached route to a server; a routing
// rule of one client's own is obeyed a moment after it was made, by each of its
// packets and by no other's, and so is its end.
func TestCachedRoutesObeyRoutingRules(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			service := at(f.vip(vipMasq), 80)
			r.serve(tcpService(service, "rr"), f.real(0, 8080))
			one, other := at(f.clientAddr(1), 1234), at(f.clientAddr(2), 1234)
			r.establish(one, service)
			r.establish(other, service)

			via := f.serverAddr(20)
			r.must(r.ns.AddNeighbours(serverDev, "02:00:00:00:77:77", via))
			rule := netlink.NewRule()
			rule.Family, rule.Table, rule.Priority = f.socketFamily(), 100, 100
			rule.Src = only(netip.MustParseAddr(f.clientAddr(1)))
			link := netip.MustParsePrefix(f.serverLink).Masked()
			route := &netlink.Route{Table: 100, Gw: via.AsSlice(), Dst: &net.IPNet{IP: link.Addr().AsSlice(), Mask: net.CIDRMask(link.Bits(), link.Addr().BitLen())}}

			want := func(client, mac string) {
				t.Helper()
				if to := r.in(t).hop(testenv.TCP(client, service, "A")); to != mac {
					t.Errorf("a packet of %s goes to %s, want %s", client, to, mac)
				}
			}
			for range 3 {
				want(one, serverMAC)
				want(other, serverMAC)
			}
			alike := r.sourcesAlike(f)
			r.must(r.ns.Do(func() error { return netlink.RouteAdd(route) }), r.ns.Do(func() error { return netlink.RuleAdd(rule) }))
			time.Sleep(believed)
			want(other, serverMAC) // the one that asks
			for range 10 {
				want(one, "02:00:00:00:77:77")
				want(other, serverMAC)
				time.Sleep(believed / 10)
			}
			if r.sourcesAlike(f) {
				t.Error("with a rule all sources still are alike")
			}
			r.must(r.ns.Do(func() error { return netlink.RuleDel(rule) }))
			time.Sleep(believed)
			want(other, serverMAC)
			want(one, serverMAC)
			// Once there were rules, the kernel takes it that there are.
			if r.sourcesAlike(f) {
				t.Error("the kernel forgot that there were rules")
			}
			if !alike && kernelTells() {
				t.Error("without a rule sources are distinguished")
			}
		})
	}
}

// A route of several routers gives each client one of them, and all of its packets
// keep to that.
func TestCachedRoutesOfSeveralNextHops(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			service := at(f.vip(vipMasq), 80)
			r.serve(tcpService(service, "rr"), f.real(0, 8080))
			route := &netlink.Route{Dst: only(f.serverAddr(0))}
			for i := range 2 {
				via := f.serverAddr(20 + i)
				r.must(r.ns.AddNeighbours(serverDev, fmt.Sprintf("02:00:00:00:77:%02d", i), via))
				route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: r.server, Gw: via.AsSlice()})
			}
			r.must(r.ns.Do(func() error { return netlink.RouteAdd(route) }))

			const clients = 1500 // more than there are slots
			hops, used := make([]string, clients), map[string]int{}
			for range 10 {
				a := netip.MustParseAddr(f.client)
				for i := range clients {
					client := at(a.String(), 1234)
					a = a.Next()
					hop := r.in(t).hop(testenv.TCP(client, service, "S"))
					used[hop]++
					if hops[i] == "" {
						hops[i] = hop
					}
					if hop != hops[i] {
						t.Fatalf("packets of %s go by %s and by %s", client, hops[i], hop)
					}
				}
			}
			if len(used) != 2 {
				t.Errorf("next hops: %v, want both of them", used)
			}
		})
	}
}

// All clients share the route to a server that is a neighbour.
func TestCachedRoutesAreShared(t *testing.T) {
	if !kernelTells() {
		t.Skip("programs of this kernel cannot read a device's namespace (Linux 6.2)")
	}
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			service := at(f.vip(vipMasq), 80)
			r.serve(tcpService(service, "rr"), f.real(0, 8080))
			for i := range 100 {
				r.syn(at(f.clientAddr(i), 1234), service)
			}
			// The first packet found no answer about the sources in the cache.
			if n := r.cachedRoutes(); n != 2 {
				t.Errorf("100 clients of one server have %d cached routes, want 2", n)
			}
		})
	}
}

// cachedRoutes counts the slots of the route cache that were ever taken.
func (r *rig) cachedRoutes() (n int) {
	r.Helper()
	var slot uint32
	var of [][]byte // of CPUs
	for all := r.maps.Routes.Iterate(); all.Next(&slot, &of); {
		if slices.ContainsFunc(of, func(way []byte) bool { return slices.Max(way) > 0 }) {
			n++
		}
	}
	return n
}

// hop is the hardware address to which a client's packet goes on.
func (r *rig) hop(p testenv.Packet) string {
	r.Helper()
	got := r.fromClient(p)
	if got.verdict != redirect {
		r.Fatalf("a client's packet: %s", got.verdict)
	}
	return net.HardwareAddr(got.frame[:6]).String()
}

func only(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// clientAddr is the address of the i-th client.
func (f family) clientAddr(i int) string {
	a := netip.MustParseAddr(f.client)
	for range i {
		a = a.Next()
	}
	return a.String()
}

func (f family) socketFamily() int {
	if f.number == model.IPv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// sourcesAlike is whether the data plane was told so.
func (r *rig) sourcesAlike(f family) bool {
	r.Helper()
	var known bpfobj.LbCacheTable
	which := 0
	if f.number == model.IPv6 {
		which = 1
	}
	r.must(r.maps.Cache.Lookup(uint32(0), &known))
	return known.Routing[which].Alike != 0
}

// kernelTells reports whether programs can read a device's namespace.
func kernelTells() bool {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var cast *btf.Func
	return kernel.TypeByName("bpf_cast_to_kern_ctx", &cast) == nil
}
