// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// wantReplies expects a server's answer to be that of a service, by the fast path
// and by the whole one; or with "" of no service.
func wantReplies(t *testing.T, r *rig, server, client, service string) {
	t.Helper()
	for _, flags := range []string{"A", "SA"} {
		p := testenv.TCP(server, client, flags)
		got := r.fromServer(p)
		if service == "" {
			wantUntouched(t, pass, got, p.Frame())
			continue
		}
		wantForwarded(t, got, p.From(service).TTL(63).MACs(clientDevMAC, routerMAC))
	}
}

// wantListed expects so many connections to have an entry for their answers.
func (r *rig) wantListed(want int) {
	r.Helper()
	if got := len(r.replies()); got != want {
		r.Errorf("%d connections have an entry for their answers, want %d", got, want)
	}
}

// A server of one service needs no entries for its answers; those of a second
// service have them, and the later of two connections gets what might be for
// both.
func TestRepliesOfTwoServices(t *testing.T) {
	r := newRig(t, small)
	one, two := tcpService(nthVIP(0), "rr"), tcpService(nthVIP(1), "rr")
	r.addService(one, 1)
	r.addService(two, 1)
	a, b := nthClient(0), nthClient(1)
	end := func(client, service string) {
		t.Helper()
		before := r.tableEntries(0)
		r.fromClient(testenv.TCP(client, service, "R"))
		r.atLast(time.Minute, "the connection ends", func() bool { return r.tableEntries(0) < before })
	}
	r.timeouts(200*time.Millisecond, bpfobj.LbConnStateTCP_CLOSE)

	r.establish(a, nthVIP(0))
	r.wantListed(0)
	r.establish(b, nthVIP(1))
	r.wantListed(1)
	wantReplies(t, r, server0, a, nthVIP(0))
	wantReplies(t, r, server0, b, nthVIP(1))

	// The same client's port by the other service, either way round.
	r.establish(a, nthVIP(1))
	wantReplies(t, r, server0, a, nthVIP(1))
	r.establish(b, nthVIP(0))
	wantReplies(t, r, server0, b, nthVIP(0))
	r.wantListed(1)

	end(a, nthVIP(1))
	wantReplies(t, r, server0, a, nthVIP(0))
	end(b, nthVIP(0))
	end(a, nthVIP(0))
	wantReplies(t, r, server0, a, "")
	end(b, nthVIP(1))
	r.wantListed(0)
}

// A service of a firewall mark, and one of every port, say nothing of the
// address and port that clients asked for.
func TestRepliesByEntry(t *testing.T) {
	r := newRig(t, small)
	marked := model.Service{Key: model.MarkKey(7, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}
	r.addService(marked, 1)
	every := tcpService("10.20.0.9:0", "rr")
	every.Flags, every.Timeout = model.Persistent, 300
	r.must(r.AddService(every), r.AddServer(every.Key, model.Server{Addr: serverAddr(0), Port: 0, Weight: 1}))
	for i := range 3 {
		p := testenv.TCP(nthClient(i), nthVIP(i), "S")
		wantForwarded(t, r.send(r.progs.LbClient, skBuff{Mark: 7}, p.Frame()), p.To(server0).TTL(63).MACs(serverDevMAC, serverMAC))
		r.syn(nthClient(10+i), netip.AddrPortFrom(netip.MustParseAddr("10.20.0.9"), uint16(8080+i)).String())
	}
	check := func() {
		t.Helper()
		for i := range 3 {
			port := uint16(8080 + i)
			wantReplies(t, r, server0, nthClient(i), nthVIP(i))
			wantReplies(t, r, netip.AddrPortFrom(serverAddr(0), port).String(), nthClient(10+i), netip.AddrPortFrom(netip.MustParseAddr("10.20.0.9"), port).String())
		}
		r.wantListed(6)
	}
	check()
	// A service of that address and port does not take them away.
	r.addService(tcpService(vip, "rr"), 1)
	check()
	r.establish(client1, vip)
	wantReplies(t, r, server0, client1, vip)
	check()
}

// A server that is deleted keeps its connections' answers; another service's
// connections have entries as long as there are such.
func TestRepliesOfDeletedServer(t *testing.T) {
	r := newRig(t, small)
	one, two := tcpService(nthVIP(0), "rr"), tcpService(nthVIP(1), "rr")
	r.addService(one, 1)
	r.must(r.AddService(two))
	old, later, last := nthClient(0), nthClient(1), nthClient(2)
	r.timeouts(200*time.Millisecond, bpfobj.LbConnStateTCP_CLOSE)

	r.establish(old, nthVIP(0))
	r.must(r.DeleteServer(one.Key, netip.MustParseAddrPort(server0)), r.AddServer(two.Key, realServer(0, 1)))
	r.establish(later, nthVIP(1))
	r.wantListed(1)
	wantReplies(t, r, server0, old, nthVIP(0))
	wantReplies(t, r, server0, later, nthVIP(1))

	// It comes back, and still is who it was.
	r.must(r.AddServer(one.Key, realServer(0, 1)))
	r.establish(last, nthVIP(0))
	r.wantListed(1)
	wantReplies(t, r, server0, last, nthVIP(0))
	r.must(r.DeleteServer(one.Key, netip.MustParseAddrPort(server0)))
	for _, client := range []string{old, last} {
		wantReplies(t, r, server0, client, nthVIP(0))
		r.fromServer(testenv.TCP(server0, client, "R"))
	}
	r.atLast(time.Minute, "the first service's connections end", func() bool { return r.tableEntries(0) == 1 })

	// The service added next is the owner; connections with an entry keep theirs.
	r.must(r.DeleteServer(two.Key, netip.MustParseAddrPort(server0)), r.AddServer(two.Key, realServer(0, 1)))
	r.establish(last, nthVIP(1))
	r.wantListed(1)
	wantReplies(t, r, server0, last, nthVIP(1))
	wantReplies(t, r, server0, later, nthVIP(1))
}

// A server that got the id of another one does not answer for it.
func TestRepliesUnderAnotherAddress(t *testing.T) {
	r := newRig(t, Sizes{Services: 4, Servers: 2, Connections: 256})
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	for i := range 5 {
		r.must(r.DeleteServer(s.Key, realServer(i, 1).AddrPort()), r.AddServer(s.Key, realServer(i+2, 1)))
	}
	to := r.establish(client1, vip)
	wantReplies(t, r, to.String(), client1, vip)
	for i := range 7 {
		if server := realServer(i, 1).AddrPort(); server != to {
			wantReplies(t, r, server.String(), client1, "")
		}
	}
	if got := r.entries(r.maps.ReplyOwners); got != 2 {
		t.Errorf("%d servers are known by their addresses, want 2", got)
	}
}

// A server gets the id of one with its own address and port, which was another
// service's: by commands of their own, and by one that adds many.
func TestRepliesUnderTheSameAddress(t *testing.T) {
	for _, servers := range []int{2, 16} {
		r := newRig(t, Sizes{Services: 4, Servers: uint32(servers), Connections: 256})
		one, two := tcpService(nthVIP(0), "rr"), tcpService(nthVIP(1), "rr")
		weights := make([]int32, servers)
		weights[0] = 1
		r.addService(one, weights...)
		r.reopen()
		r.must(r.Flush())
		r.reopen()
		r.must(r.Batch(func() error {
			r.addService(two, weights...)
			return nil
		}))
		for range 2 {
			to := r.establish(client1, nthVIP(1))
			wantReplies(t, r, to.String(), client1, nthVIP(1))
			r.wantListed(0)
			if got := len(r.replyOwners()); got != servers {
				t.Errorf("%d servers are known by their addresses, want %d", got, servers)
			}
			r.must(r.DeleteServer(two.Key, to), r.AddServer(two.Key, realServer(0, 1)))
			r.reopen()
		}
	}
}

// A client reaches a server by two services from one port, and another client by
// the first of them: answers of the first client stay the later connection's.
func TestRepliesOfALaterOwner(t *testing.T) {
	for name, prepare := range map[string]func(*rig) (older func(client string)){
		"after a service of a mark": func(r *rig) func(string) {
			r.addService(model.Service{Key: model.MarkKey(7, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}, 1)
			return func(client string) {
				r.send(r.progs.LbClient, skBuff{Mark: 7}, testenv.TCP(client, nthVIP(5), "S").Frame())
			}
		},
		"after a second service": func(r *rig) func(string) {
			r.addService(tcpService(nthVIP(1), "rr"), 1)
			r.addService(tcpService(nthVIP(2), "rr"), 1)
			r.must(r.DeleteService(tcpService(nthVIP(1), "rr").Key))
			return func(client string) { r.establish(client, nthVIP(2)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, small)
			a, b := nthClient(0), nthClient(1)
			older := prepare(r)
			older(a)
			r.wantListed(1)
			r.addService(tcpService(nthVIP(0), "rr"), 1)
			r.establish(a, nthVIP(0))
			wantReplies(t, r, server0, a, nthVIP(0))
			older(b)
			wantReplies(t, r, server0, a, nthVIP(0))
		})
	}
}
