// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// explain asks about a TCP connection.
func (r *rig) explain(client, virtual string) Explanation {
	r.Helper()
	return r.answer(Question{
		Client: netip.MustParseAddrPort(client), Virtual: netip.MustParseAddrPort(virtual), Protocol: model.TCP,
	})
}

func (r *rig) answer(q Question) (a Explanation) {
	r.Helper()
	r.must(r.ns.Do(func() (err error) {
		a, err = r.Explain(q)
		return err
	}))
	return a
}

// What is foretold is what comes, whatever the scheduler, and the runner-up is
// who comes if the first one can take nothing. Nothing else comes of asking.
func TestForetold(t *testing.T) {
	r := newRig(t, small)
	random := rand.New(rand.NewPCG(1, 2))
	for i, name := range model.SchedulerNames() {
		if name == "twos" {
			continue // draws lots
		}
		for flags := range model.ServiceFlags(2) {
			t.Run(fmt.Sprintf("%s %d", name, flags), func(t *testing.T) {
				r := r.in(t)
				s := tcpService(fmt.Sprintf("10.20.%d.%d:80", 1+i, 1+flags), name)
				s.Flags = flags * model.SchedFlag1
				r.must(r.AddService(s))
				for i := range 5 {
					r.must(r.AddServer(s.Key, realServer(i, random.Int32N(4))))
				}
				r.must(r.AddServer(s.Key, realServer(5, 2)))
				for range 60 {
					client := nthClient(random.IntN(1 << 20))
					r.foretold(s, client)
					if random.IntN(6) == 0 {
						r.must(r.EditServer(s.Key, realServer(random.IntN(5), random.Int32N(5))))
					}
				}
			})
		}
	}
}

// foretold asks, and looks whether it comes true.
func (r *rig) foretold(s model.Service, client string) {
	r.Helper()
	virtual := netip.AddrPortFrom(s.Key.Addr, s.Key.Port).String()
	a := r.explain(client, virtual)
	if first := a.Packet.Server; first != nil && !strings.HasPrefix(s.Scheduler, "lblc") {
		r.wantRunnerUp(s, client, &a)
	}
	if again := r.explain(client, virtual); cmp.Diff(a.Packet.Server, again.Packet.Server, cmp.Comparer(sameEnd)) != "" {
		r.Errorf("%s foretells %v and then %v", s.Scheduler, a.Packet.Server, again.Packet.Server)
	}
	got := r.fromClient(testenv.TCP(client, virtual, "S"))
	if a.Packet.Server == nil {
		if a.Packet.Reason != "no server" {
			r.Errorf("%s: nobody is foretold, for %q", s.Scheduler, a.Packet.Reason)
		}
		if server, err := got.server(); err == nil && server.Addr() != netip.MustParseAddrPort(client).Addr() {
			r.Errorf("%s foretells nobody, and chooses %v", s.Scheduler, server)
		}
		return
	}
	if server, err := got.server(); err != nil || server != a.Packet.Server.Addr {
		r.Errorf("%s foretells %v and chooses %v %v", s.Scheduler, a.Packet.Server.Addr, server, err)
	}
}

func sameEnd(a, b netip.AddrPort) bool { return a == b }

// wantRunnerUp closes the first one's threshold for a moment.
func (r *rig) wantRunnerUp(s model.Service, client string, a *Explanation) {
	r.Helper()
	id, ok := r.serverID(s.Key, a.Packet.Server.Addr)
	if !ok {
		r.Fatalf("no server %v", a.Packet.Server.Addr)
	}
	var l bpfobj.LbLoad
	r.must(r.maps.Loads.Lookup(id, &l))
	open := l
	l.Overloaded |= loadOverloaded
	r.must(r.maps.Loads.Put(id, l))
	without := r.explain(client, netip.AddrPortFrom(s.Key.Addr, s.Key.Port).String())
	r.must(r.maps.Loads.Put(id, open))
	if diff := cmp.Diff(without.Packet.Server, a.Packet.RunnerUp, cmp.Comparer(sameEnd)); diff != "" {
		r.Errorf("%s: who comes without %v is not who was second (-without +second):\n%s", s.Scheduler, a.Packet.Server.Addr, diff)
	}
}

func (r *rig) serverID(k model.ServiceKey, addr netip.AddrPort) (uint32, bool) {
	r.Helper()
	t, err := r.load()
	r.must(err)
	id, ok := t.find(serverKey{toKey(k), toAddress(addr.Addr()), swapPort(addr.Port())})
	return id, ok
}

// lblc and lblcr: the server stored for the destination comes first, the
// runner-up is wlc's or of the same set; the memory stays.
func TestForetoldOfLocality(t *testing.T) {
	r := newRig(t, small)
	for i, name := range []string{"lblc", "lblcr"} {
		s := r.schedule(nthVIP(i), name, 2, 9, 3)
		s.want(2, "AA")
		a := r.explain("10.10.9.9:9", s.vip)
		if got := names([]netip.AddrPort{a.Packet.Server.Addr, a.Packet.RunnerUp.Addr}); got != "AB" {
			t.Errorf("%s: %s", name, got)
		}
		var used [2]uint64
		for j := range used {
			used[j] = r.lastUse(name, s.vip)
			r.explain("10.10.9.9:9", s.vip)
			time.Sleep(10 * time.Millisecond)
		}
		if used[0] != used[1] {
			t.Errorf("%s: asking counts as use", name)
		}
	}
}

// lastUse is when a destination's servers were chosen.
func (r *rig) lastUse(scheduler, virtual string) uint64 {
	r.Helper()
	addr := netip.MustParseAddrPort(virtual)
	all, err := r.load()
	r.must(err)
	svc := all.services[toKey(model.AddrKey(model.TCP, addr))]
	key := bpfobj.LbLocalityKey{Addr: toAddress(addr.Addr()), Service: svc.Id, Incarnation: svc.Incarnation}
	if scheduler == "lblc" {
		var l bpfobj.LbLocality
		r.must(r.maps.Localities.Lookup(key, &l))
		return l.LastUse
	}
	var l bpfobj.LbLocalitySet
	r.must(r.maps.LocalitySets.Lookup(key, &l))
	return l.LastUse
}

// The answer before a connection, during, and after.
func TestExplain(t *testing.T) {
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	r.addService(s, 1, 1)
	r.must(r.ns.Do(func() error { return r.Attach(clientDev, serverDev, HookAuto) }))

	a := r.explain(client1, vip)
	if !a.Attached || a.Known || a.Connection != nil || a.Template != nil {
		t.Errorf("before: %+v", a)
	}
	if got := tale(&a.Packet); got != "forwarded rr: B(1 0+0) before A(1 0+0)" {
		t.Errorf("before: %s", got)
	}
	server := r.establish(client1, vip)
	a = r.explain(client1, vip)
	if !a.Known || a.Connection == nil || a.Connection.State != "ESTABLISHED" || a.Connection.Server.Addr != server ||
		a.Connection.Server.Active != 1 || a.Connection.Forward != "Masq" || a.Connection.Port != 8080 {
		t.Errorf("during: %+v", a)
	}
	near := func(s Seconds, want time.Duration) bool {
		return time.Duration(s) > want-10*time.Second && time.Duration(s) <= want
	}
	if !near(a.Connection.Expires, 15*time.Minute) {
		t.Errorf("it expires in %v", time.Duration(a.Connection.Expires))
	}
	if m := a.Template; m == nil || m.Clients != "10.10.0.2" || m.Connections != 1 || !near(m.Expires, s.Timeout) {
		t.Errorf("its template: %+v", m)
	}
	a = r.explain("10.10.0.2:99", vip)
	if got := tale(&a.Packet); a.Known || got != "forwarded template of 10.10.0.2: B(1 1+0)" || a.Template == nil {
		t.Errorf("another port of the client: %s, %+v", got, a.Template)
	}
	r.fromClient(testenv.TCP(client1, vip, "FA"))
	r.fromServer(testenv.TCP(server.String(), client1, "FA"))
	r.must(r.DeleteServer(s.Key, server))
	a = r.explain(client1, vip)
	if got := tale(&a.Packet); !a.Known || got != "drop server deleted B(1 0+1)" {
		t.Errorf("the server is gone: %+v", a)
	}
}

// emptyVIP is a service without servers.
const emptyVIP = "10.20.0.2:80"

// What would become of a first packet that is not forwarded.
func TestExplainedReasons(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(tcpService(emptyVIP, "rr"))
	lost := tcpService("10.20.0.5:80", "rr")
	r.must(r.AddService(lost), r.AddServer(lost.Key, model.Server{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 1}))
	local := tcpService("10.20.0.6:80", "rr")
	r.must(r.AddService(local), r.AddServer(local.Key, model.Server{Addr: serverAddr(0), Port: 80, Weight: 1, Forward: model.LocalNode}))
	r.reopen()
	own, loopback := ipv4.own(), netip.MustParseAddr(ipv4.loopback)
	r.serve(tcpService("10.20.0.7:80", "rr"), model.Server{Addr: own, Port: 8080, Weight: 1})
	r.serve(tcpService("10.20.0.8:80", "rr"), model.Server{Addr: loopback, Port: 8080, Weight: 1})
	r.serve(tcpService("10.20.0.9:80", "rr"), model.Server{Addr: loopback, Port: 80, Weight: 1, Forward: model.Route})
	r.serve(tcpService("10.20.0.10:80", "rr"), model.Server{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Weight: 1, Forward: model.Route})
	r.must(r.ns.Do(func() error { return r.Attach(clientDev, serverDev, HookAuto) }))
	reasons := r.reasonsOf(func() {
		for _, c := range []struct{ client, virtual, want string }{
			{client1, vip, "forwarded"},
			{client1, emptyVIP, "refused no server"},
			{client1, "10.20.0.1:81", "pass no service"},
			{"10.10.0.2:20", vip, "pass ftp data"},
			{client1, "10.20.0.5:80", "refused no route"},
			{client1, "10.20.0.6:80", "pass local"},
			{client1, "10.20.0.7:80", "pass local"},
			{client1, "10.20.0.8:80", "drop to loopback"},
			{client1, "10.20.0.9:80", "pass local"},
			{client1, "10.20.0.10:80", "refused no route"},
		} {
			a := r.explain(c.client, c.virtual)
			if got := strings.TrimSpace(a.Packet.Verdict + " " + a.Packet.Reason); got != c.want {
				t.Errorf("%s to %s: %s, want %s", c.client, c.virtual, got, c.want)
			}
		}
	})
	delete(reasons, "pass not ours") // the devices' own talk of neighbours
	if len(reasons) != 0 {
		t.Errorf("asking was counted: %v", reasons)
	}
	if n := r.tableEntries(0); n != 0 {
		t.Errorf("%d connections came of asking", n)
	}
	if stats := r.status(tcpService(vip, "rr").Key).Stats; stats != (model.Stats{}) {
		t.Errorf("asking was counted: %+v", stats)
	}
	r.must(r.ns.Sysctl("net.ipv4.conf."+clientDev+".forwarding", "0"))
	if a := r.explain(client1, vip); a.Packet.Reason != "forwarding off" {
		t.Errorf("without forwarding: %+v", a.Packet)
	}
}

// How a service is found, for each protocol and family.
func TestExplainedServices(t *testing.T) {
	r := newRig(t, small)
	mark := model.Service{Key: model.MarkKey(7, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}
	six := service(model.TCP, "[2001:db8::1]:80", "rr")
	six.Netmask = model.FullMask(model.IPv6)
	for _, s := range []model.Service{
		tcpService(vip, "rr"), service(model.UDP, farVIP, "rr"), service(model.SCTP, vip, "rr"), mark, six,
		persistent(tcpService("10.20.0.7:21", "rr")), persistent(tcpService("10.20.0.8:0", "rr")),
	} {
		r.must(r.AddService(s))
		server := realServer(0, 1)
		if s.Key.Family == model.IPv6 {
			server.Addr = netip.MustParseAddr("2001:db8:1::2")
		}
		r.must(r.AddServer(s.Key, server))
	}
	for _, c := range []struct {
		client, virtual string
		model.Protocol
		mark    uint32
		service string
		by      FoundBy
	}{
		{client1, vip, model.TCP, 0, "10.20.0.1:80/tcp", ByAddress},
		{client1, vip, model.SCTP, 0, "10.20.0.1:80/sctp", ByAddress},
		{client1, farVIP, model.UDP, 0, "10.20.0.2:53/udp", ByAddress},
		{client1, vip, model.TCP, 7, "fwmark 7", ByMark},
		{client1, "10.20.0.7:2000", model.TCP, 0, "10.20.0.7:21/tcp", ByFTP},
		{client1, "10.20.0.8:443", model.TCP, 0, "10.20.0.8:0/tcp", ByAnyPorts},
		{"[2001:db8::2]:9", "[2001:db8::1]:80", model.TCP, 0, "[2001:db8::1]:80/tcp", ByAddress},
	} {
		a := r.answer(Question{netip.MustParseAddrPort(c.client), netip.MustParseAddrPort(c.virtual), c.Protocol, c.mark})
		e := a.Packet
		if e.Service != c.service || e.FoundBy != c.by || e.Verdict != "forwarded" || e.Server == nil || a.Attached {
			t.Errorf("%s to %s: %+v", c.client, c.virtual, e)
		}
	}
}
