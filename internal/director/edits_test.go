// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// listing is all services by key, without what traffic changes.
func (r *rig) listing() map[model.ServiceKey]model.ServiceStatus {
	r.Helper()
	all, err := r.Services()
	r.must(err)
	by := map[model.ServiceKey]model.ServiceStatus{}
	for _, s := range all {
		by[s.Key] = s
	}
	return by
}

var ignoreTraffic = cmp.Options{
	cmpopts.IgnoreFields(model.ServiceStatus{}, "Stats", "Total", "Rates"),
	cmpopts.IgnoreFields(model.ServerStatus{}, "Active", "Inactive", "Persistent", "Stats", "Total", "Rates"),
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

var ignoreRates = cmp.Options{
	cmpopts.IgnoreFields(model.ServiceStatus{}, "Rates"),
	cmpopts.IgnoreFields(model.ServerStatus{}, "Rates"),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// servers are a service's servers in the order of the list, as letters.
func (r *rig) servers(k model.ServiceKey) string {
	r.Helper()
	var all []netip.AddrPort
	for _, s := range r.status(k).Servers {
		all = append(all, s.AddrPort())
	}
	return names(all)
}

// What is written comes back, from this handle and from the next.
func TestListing(t *testing.T) {
	r := newRig(t, small)
	full := service(model.UDP, "10.20.0.3:53", "sh")
	full.Flags = model.Persistent | model.SchedFlag1 | model.SchedFlag2
	full.Timeout, full.Netmask = 360*time.Second, 0xffffff00
	six := service(model.TCP, "[fd00:20::1]:80", "wlc")
	six.Netmask = 128
	tunnel := model.Server{Addr: serverAddr(1), Port: 53, Forward: model.Tunnel, Weight: 65535, Upper: 9, Lower: 3,
		TunnelType: model.GUE, TunnelPort: 6080, TunnelFlags: model.TunnelCsum}
	want := map[model.ServiceKey]model.ServiceStatus{}
	mapped := service(model.TCP, "[::ffff:10.20.0.1]:80", "rr") // not the IPv4 address's
	mapped.Netmask = 128
	for _, s := range []model.Service{
		full, six, mapped, tcpService(vip, "wlc"), tcpService("10.20.0.1:0", "rr"),
		{Key: model.MarkKey(1<<31, model.IPv4), Scheduler: "mh", Netmask: model.FullMask(model.IPv4)},
		{Key: model.MarkKey(1, model.IPv6), Scheduler: "lc", Netmask: 128},
	} {
		other := realServer(0, 0)
		if s.Key.Family == model.IPv6 {
			other.Forward = model.Tunnel // as its address is of the other family
		}
		r.must(r.AddService(s), r.AddServer(s.Key, tunnel), r.AddServer(s.Key, other))
		want[s.Key] = model.ServiceStatus{Service: s, Servers: []model.ServerStatus{{Server: other}, {Server: tunnel}}}
	}
	if diff := cmp.Diff(want, r.listing(), ignoreTraffic); diff != "" {
		t.Errorf("this handle (-want +got):\n%s", diff)
	}
	r.reopen()
	if diff := cmp.Diff(want, r.listing(), ignoreTraffic); diff != "" {
		t.Errorf("another handle (-want +got):\n%s", diff)
	}
	changed := full
	changed.Scheduler, changed.Flags, changed.Timeout, changed.Netmask = "wrr", model.OnePacket, 0, model.FullMask(model.IPv4)
	r.must(r.EditService(changed))
	if got := r.status(full.Key); !cmp.Equal(got.Service, changed, ignoreTraffic) || len(got.Servers) != 2 {
		t.Errorf("edited to %v", got)
	}
	edited := tunnel
	edited.Forward, edited.Weight, edited.Upper, edited.Lower = model.Masquerade, 7, 0, 0
	edited.TunnelType, edited.TunnelPort, edited.TunnelFlags = model.IPIP, 0, 0
	r.must(r.EditServer(full.Key, edited))
	r.reopen()
	if got := r.status(full.Key).Servers[1].Server; !cmp.Equal(got, edited, ignoreTraffic) {
		t.Errorf("server edited to %v", got)
	}
}

// A persistence netmask may have holes: only its bits of an address count.
func TestHoleyNetmask(t *testing.T) {
	r := newRig(t, small)
	holes := persistent(tcpService(vip, "rr"))
	holes.Netmask = 0xff00ff00
	r.addService(holes, 1, 1)
	first := r.syn("10.10.7.1:1000", vip)
	if got := r.syn("10.99.7.200:1000", vip); got != first {
		t.Errorf("a client that differs in the holes only: %s, want %s", got, first)
	}
	if got := r.syn("10.10.8.1:1000", vip); got == first {
		t.Errorf("a client of another network: %s, too", got)
	}
	if got := r.status(holes.Key).Netmask; got != holes.Netmask {
		t.Errorf("listed with netmask %#x", got)
	}
}

// A service with an unknown persistence engine is neither added nor edited.
func TestUnknownEngine(t *testing.T) {
	r := newRig(t, small)
	s := persistent(service(model.UDP, "10.20.0.1:5060", "rr"))
	odd := s
	odd.Engine = "sip2"
	if err := r.AddService(odd); !errors.Is(err, model.ErrNoScheduler) {
		t.Errorf("added: %v", err)
	}
	r.must(r.AddService(s))
	if err := r.EditService(odd); !errors.Is(err, model.ErrNoScheduler) {
		t.Errorf("edited: %v", err)
	}
	if got := r.status(s.Key).Service; got != s {
		t.Errorf("it is %+v", got)
	}
}

// A server of the other address family must be behind a tunnel, and stay there.
func TestOtherFamilyNeedsTunnel(t *testing.T) {
	r := newRig(t, small)
	for _, f := range families {
		s := service(model.TCP, at(f.vip(1), 80), "rr")
		r.must(r.AddService(s))
		plain := f.other().real(0, 80)
		tunnel := plain
		tunnel.Forward = model.Tunnel
		if err := r.AddServer(s.Key, plain); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %s added without a tunnel: %v", f.name, plain.Addr, err)
		}
		r.must(r.AddServer(s.Key, tunnel))
		for range 2 { // with the table and without it
			if err := r.EditServer(s.Key, plain); !errors.Is(err, model.ErrInvalid) {
				t.Errorf("%s: %s taken out of its tunnel: %v", f.name, plain.Addr, err)
			}
			r.reopen()
		}
		if got := r.status(s.Key).Servers; len(got) != 1 || got[0].Forward != model.Tunnel {
			t.Errorf("%s: %+v", f.name, got)
		}
	}
}

// A new server goes to the head of the list; edits move none; a deleted one
// leaves the others in place, and comes back at the head.
func TestOrderOfServers(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1, 1, 1)
	for _, step := range []struct {
		what string
		do   func() error
		want string
	}{
		{"added four", func() error { return nil }, "DCBA"},
		{"edited B", func() error { return r.EditServer(s.Key, realServer(1, 5)) }, "DCBA"},
		{"deleted B", func() error { return r.DeleteServer(s.Key, realServer(1, 1).AddrPort()) }, "DCA"},
		{"added B", func() error { return r.AddServer(s.Key, realServer(1, 1)) }, "BDCA"},
		{"deleted the head", func() error { return r.DeleteServer(s.Key, realServer(1, 1).AddrPort()) }, "DCA"},
		{"deleted the tail", func() error { return r.DeleteServer(s.Key, realServer(0, 1).AddrPort()) }, "DC"},
	} {
		r.must(step.do())
		if got := r.servers(s.Key); got != step.want {
			t.Errorf("%s: order %s, want %s", step.what, got, step.want)
		}
		r.reopen()
		if got := r.servers(s.Key); got != step.want {
			t.Errorf("%s, read again: order %s, want %s", step.what, got, step.want)
		}
	}
}

// A list grows beyond its slots, beside others that are in its way, and
// nothing is lost or given twice.
func TestListsGrow(t *testing.T) {
	r := newRig(t, Sizes{Services: 64, Servers: 256, Connections: 1024})
	const services, servers = 8, 20
	var keys []model.ServiceKey
	for i := range services {
		s := tcpService(nthVIP(i), "rr")
		r.must(r.AddService(s))
		keys = append(keys, s.Key)
	}
	for n := range servers {
		for _, k := range keys {
			r.must(r.AddServer(k, realServer(n, int32(n))))
		}
	}
	for _, k := range []model.ServiceKey{keys[1], keys[4], keys[5]} {
		r.must(r.DeleteService(k), r.AddService(model.Service{Key: k, Scheduler: "lc", Netmask: model.FullMask(model.IPv4)}))
		for n := range servers {
			r.must(r.AddServer(k, realServer(n, int32(n))))
		}
	}
	check := func() {
		t.Helper()
		for _, k := range keys {
			for i, s := range r.status(k).Servers {
				if want := servers - 1 - i; s.Addr != serverAddr(want) || s.Weight != int32(want) {
					t.Fatalf("%s: server %d is %v", k, i, s.Server)
				}
			}
		}
	}
	check()
	r.reopen()
	check()
	r.must(r.Flush())
	r.reopen()
	tab, err := r.load()
	r.must(err, r.barrier())
	if free := tab.slots.free; len(free) != 1 || free[0] != (extent{0, r.maps.Order.MaxEntries()}) {
		t.Errorf("free slots after a flush: %v", free)
	}
}

// A server that was deleted with connections comes back with them and with
// its counters (ip_vs_trash_get_dest); no other server gets its id.
func TestServerComesBack(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	for i := range 4 {
		r.establish(nthClient(i), vip)
	}
	r.walk(nthClient(0), vip, "172.16.0.11:8080", "c:FA")
	before := r.status(s.Key).Servers[0]
	r.must(r.DeleteServer(s.Key, before.AddrPort()), r.AddServer(s.Key, realServer(5, 1)))
	r.reopen()
	if fresh := r.status(s.Key).Servers[0]; fresh.Active+fresh.Inactive != 0 || fresh.Stats != (model.Stats{}) {
		t.Errorf("a new server begins with %+v", fresh)
	}
	r.must(r.AddServer(s.Key, realServer(1, 3)))
	back := r.status(s.Key).Servers[0]
	want := before
	want.Weight, want.Rates, back.Rates = 3, model.Rates{}, model.Rates{}
	if back != want || back.Active != 1 || back.Inactive != 1 {
		t.Errorf("came back as %+v, want %+v with 1 active and 1 inactive", back, want)
	}
}

// A service that is made again finds its servers' connections, but begins to
// count anew.
func TestServiceComesBack(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.establish(client1, vip)
	r.must(r.DeleteService(s.Key))
	p := testenv.TCP(client1, vip, "A")
	// Without any service the director looks at nothing.
	wantUntouched(t, pass, r.fromClient(p), p.Frame())
	other := tcpService("10.20.0.7:80", "rr")
	r.addService(other, 1) // takes the service's id
	wantUntouched(t, drop, r.fromClient(p), p.Frame())
	r.addService(s, 1)
	wantForwarded(t, r.fromClient(p), p.To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
	st := r.status(s.Key)
	if want := (model.Stats{InPkts: 1, InBytes: 40}); st.Stats != want || st.Servers[0].Stats != want {
		t.Errorf("counted %+v and %+v, want %+v", st.Stats, st.Servers[0].Stats, want)
	}
	if st.Servers[0].Active != 1 || r.status(other.Key).Servers[0].Active != 0 {
		t.Errorf("%d active, and %d at the other service; want 1 and 0", st.Servers[0].Active, r.status(other.Key).Servers[0].Active)
	}
	if got := r.status(other.Key).Stats; got != (model.Stats{}) {
		t.Errorf("the other service counted %+v", got)
	}
}

// Ids of deleted servers are given again when there is need, but not those
// that connections still refer to.
func TestServerIDs(t *testing.T) {
	r := newRig(t, Sizes{Services: 4, Servers: 4, Connections: 64})
	s := tcpService(vip, "rr")
	r.addService(s, 0, 0, 1, 0)
	r.establish(client1, vip)
	r.must(r.DeleteServer(s.Key, realServer(2, 1).AddrPort()), // has a connection
		r.DeleteServer(s.Key, realServer(1, 1).AddrPort()),
		r.AddServer(s.Key, realServer(4, 1)))
	if err := r.AddServer(s.Key, realServer(5, 1)); !errors.Is(err, model.ErrTableFull) {
		t.Errorf("a fifth server: %v, want %v", err, model.ErrTableFull)
	}
	r.must(r.AddServer(s.Key, realServer(2, 1)))
	if got := r.servers(s.Key); got != "CEDA" {
		t.Errorf("servers %s, want CEDA", got)
	}
	if a, _ := r.counts(s.Key, serverAddr(2)); a != 1 {
		t.Errorf("the connection's server has %d", a)
	}
	if a, i := r.counts(s.Key, serverAddr(4)); a+i != 0 {
		t.Errorf("the new server has %d connections", a+i)
	}
}

// Ids of services are given again at once.
func TestServiceIDs(t *testing.T) {
	r := newRig(t, Sizes{Services: 3, Servers: 4, Connections: 64})
	for i := range 3 {
		r.must(r.AddService(tcpService(nthVIP(i), "mh")))
	}
	if err := r.AddService(tcpService(vip, "rr")); !errors.Is(err, model.ErrTableFull) {
		t.Errorf("a fourth service: %v, want %v", err, model.ErrTableFull)
	}
	r.must(r.DeleteService(tcpService(nthVIP(1), "").Key), r.AddService(tcpService(vip, "rr")))
	if got := r.listing(); len(got) != 3 {
		t.Errorf("services %v", got)
	}
}

func (r *rig) overloaded(id uint32) bool {
	r.Helper()
	var l bpfobj.LbLoad
	r.must(r.maps.Loads.Lookup(id, &l))
	return overloaded(l)
}

// A server at its upper threshold gets nothing new until it is below the
// lower one, or below three quarters of the upper; or the threshold rises.
func TestThresholds(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	for n, c := range []struct {
		name         string
		upper, lower uint32
		closed       int // of 4 connections
		open         bool
	}{
		{"none", 0, 0, 0, true},
		{"not reached", 5, 0, 0, true},
		{"reached", 4, 0, 0, false},
		{"three quarters", 4, 0, 1, false},
		{"below three quarters", 4, 0, 2, true},
		{"lower", 4, 2, 2, false},
		{"below lower", 4, 2, 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := r.in(t)
			vip := nthVIP(n)
			s := tcpService(vip, "rr")
			server := realServer(0, 1)
			server.Upper, server.Lower = c.upper, c.lower
			r.must(r.AddService(s), r.AddServer(s.Key, server))
			for i := range 4 {
				r.establish(nthClient(10*n+i), vip)
			}
			r.timeouts(time.Millisecond, bpfobj.LbConnStateTCP_CLOSE)
			for i := range c.closed {
				r.walk(nthClient(10*n+i), vip, server0, "c:R")
			}
			r.atLast(time.Minute, "connections end", func() bool { a, i := r.counts(s.Key, server.Addr); return int(a+i) == 4-c.closed })
			// A closed one leads to an ICMP error, which has no ports.
			if _, err := r.fromClient(testenv.TCP(nthClient(10*n+9), vip, "S")).server(); (err == nil) != c.open {
				t.Errorf("a SYN: %v", err)
			}
		})
	}
}

// Raising or removing the threshold opens a server, lowering it does not
// close it, adding it again opens it (__ip_vs_update_dest).
func TestThresholdEdits(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	with := func(upper uint32) model.Server { m := realServer(0, 1); m.Upper = upper; return m }
	r.must(r.AddService(s), r.AddServer(s.Key, with(2)))
	r.establish(nthClient(0), vip)
	r.establish(nthClient(1), vip)
	for _, step := range []struct {
		what  string
		do    func() error
		close bool
	}{
		{"reached", func() error { return nil }, true},
		{"the same again", func() error { return r.EditServer(s.Key, with(2)) }, true},
		{"lower", func() error { return r.EditServer(s.Key, with(1)) }, true},
		{"raised", func() error { return r.EditServer(s.Key, with(3)) }, false},
		{"one more", func() error { r.establish(nthClient(2), vip); return nil }, true},
		{"none", func() error { return r.EditServer(s.Key, with(0)) }, false},
		{"below the number", func() error { return r.EditServer(s.Key, with(1)) }, false},
		{"one more", func() error { r.establish(nthClient(3), vip); return nil }, true},
		{"deleted", func() error { return r.DeleteServer(s.Key, with(1).AddrPort()) }, true},
		{"added with more", func() error { return r.AddServer(s.Key, with(9)) }, false},
	} {
		r.must(step.do())
		if got := r.overloaded(0); got != step.close {
			t.Errorf("%s: overloaded %t, want %t", step.what, got, step.close)
		}
	}
}
