// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// follow begins to follow, until the test ends.
func (r *rig) follow(rule FollowRule) (f *Follower) {
	r.Helper()
	f = listening(r, func() (*Follower, error) { return Follow(rule) })
	r.Cleanup(func() { r.unfollow(f) })
	return f
}

// unfollow ends a follower, if it has not ended.
func (r *rig) unfollow(f *Follower) {
	r.Helper()
	r.unlisten(f.stop, f.Close)
}

// followed is what a follower has received since it was asked last.
func (r *rig) followed(f *Follower) (all []ConnectionEvent) {
	r.Helper()
	r.waiting(f.reader, func(raw []byte) {
		e, err := followEvent(raw)
		r.must(err)
		all = append(all, e)
	})
	return all
}

// connectionTale is an event in short: the client's port, the kind and the states.
func connectionTale(e ConnectionEvent) string {
	words := []string{fmt.Sprint(e.Client.Port()), e.Kind}
	if e.IsTemplate {
		words[0] = "template"
	}
	if e.Was != "" {
		e.State = e.Was + ">" + e.State
	}
	words = append(words, e.State)
	if e.Over {
		words = append(words, "over")
	}
	return strings.Join(words, " ")
}

func connectionTales(all []ConnectionEvent) (short []string) {
	for _, e := range all {
		short = append(short, connectionTale(e))
	}
	return short
}

func (r *rig) wantFollowed(f *Follower, want ...string) {
	r.Helper()
	if diff := cmp.Diff(want, connectionTales(r.followed(f))); diff != "" {
		r.Errorf("followed (-want +got):\n%s", diff)
	}
}

// A connection that is over and whose client opens the next one ends with the time that it had: other
// directors judge by it which packets came later.
func TestFollowOutdated(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.establish(client1, vip)
	r.fromClient(testenv.TCP(client1, vip, "R"))
	follower := r.follow(FollowRule{})
	r.syn(client1, vip)
	got := r.followed(follower)
	if diff := cmp.Diff([]string{"1234 close CLOSE", "1234 open SYN_RECV"}, connectionTales(got)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if e := got[0].ExpiresIn; e < 8 || e > 11 {
		t.Errorf("the old one would have ended in %g s; CLOSE lasts 10 s", e)
	}
}

// An event says all that there is to say of a connection.
func TestConnectionEvent(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, small)
			s := persistent(tcpService(at(f.vip(1), 80), "rr"))
			s.Netmask = model.Netmask(map[string]uint32{"IPv4": 0xffffff00, "IPv6": 64}[f.name])
			r.serve(s, f.real(0, 8080))
			client, virtual := at(f.client, 1234), at(f.vip(1), 80)
			follower := r.follow(FollowRule{Entries: OnlyConnections})
			before := time.Now()
			r.establish(client, virtual)
			got := r.followed(follower)
			if len(got) != 2 {
				t.Fatalf("%d events: %v", len(got), connectionTales(got))
			}
			if e := got[1].Time; e.Before(before.Add(-50*time.Millisecond)) || e.After(time.Now().Add(50*time.Millisecond)) {
				t.Errorf("reported at %v of %v", e, before)
			}
			if e := got[1].ExpiresIn; e < 899 || e > 901 {
				t.Errorf("it expires in %g s", e)
			}
			got[1].Time, got[1].ExpiresIn = time.Time{}, 0
			network, err := netip.MustParseAddr(f.client).Prefix(map[string]int{"IPv4": 24, "IPv6": 64}[f.name])
			r.must(err)
			want := ConnectionEvent{
				Kind: "state", Protocol: "tcp", Client: netip.MustParseAddrPort(client), Virtual: netip.MustParseAddrPort(virtual),
				Server: netip.AddrPortFrom(f.serverAddr(0), 8080), Service: virtual + "/tcp", Forward: "Masq",
				Was: "SYN_RECV", State: "ESTABLISHED", Flags: []string{"unproven"}, Template: &ControllingTemplate{By: "port", Network: network.String()},
			}
			if diff := cmp.Diff(want, got[1], cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A TCP connection is reported from its opening to its end, by each path alike, and the
// fast path stays on.
func TestFollowTCP(t *testing.T) {
	steps := []struct {
		fromServer bool
		flags      string
		fast       bool // by the fast path of the classifiers, and
		xdp        bool // by XDP
	}{
		{false, "S", false, true}, {true, "SA", true, true}, {false, "A", true, true}, {true, "PA", true, true},
		{true, "FA", true, true}, {false, "FA", true, true}, {true, "A", true, true},
	}
	want := []string{"open SYN_RECV", "state SYN_RECV>ESTABLISHED", "state ESTABLISHED>FIN_WAIT",
		"state FIN_WAIT>TIME_WAIT", "close TIME_WAIT", "open SYN_RECV"}
	for _, f := range families {
		r := newRig(t, small)
		web, server := at(f.vip(1), 80), at(f.serverAddr(0).String(), 8080)
		r.serve(tcpService(web, "rr"), f.real(0, 8080))
		r.ownsRepliesHere()
		follower := r.follow(FollowRule{})
		for port, path := range map[uint16]string{1001: "fast", 1002: "whole", 1003: "xdp"} {
			t.Run(f.name+", "+path, func(t *testing.T) {
				r := r.in(t)
				client := at(f.client, int(port))
				for _, step := range steps {
					p, program := testenv.TCP(client, web, step.flags), r.progs.LbClient
					if step.fromServer {
						p, program = testenv.TCP(server, client, step.flags), r.progs.LbServer
					}
					switch {
					case path == "xdp":
						if taken := r.sure(step.fromServer, p.Frame()).verdict == xdpRedirect; taken != step.xdp {
							t.Errorf("%s: taken by XDP: %t", step.flags, taken)
						}
					case path == "whole" || !step.fast:
						r.whole(step.fromServer, p.Frame())
					default:
						r.withoutWhole(func() {
							if got := r.send(program, skBuff{}, p.Frame()); got.verdict != redirect {
								t.Errorf("%s is not taken by the fast path: %s", step.flags, got.verdict)
							}
						})
					}
				}
				r.syn(client, web)
				var all []string
				for _, one := range want {
					all = append(all, fmt.Sprint(port, " ", one))
				}
				r.wantFollowed(follower, all...)
			})
		}
		r.wantClean("after following")
	}
}

// What opens and ends connections otherwise.
func TestFollowKindsOfConnections(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(service(model.UDP, vip, "rr"), 1)
	alone := service(model.UDP, farVIP, "rr")
	alone.Flags = model.OnePacket
	r.addService(alone, 1)
	gone := tcpService(emptyVIP, "rr")
	r.addService(gone, 1, 1)
	sip := sipService()
	r.addService(sip, 1)
	f := r.follow(FollowRule{Entries: OnlyConnections})

	r.timeouts(300*time.Millisecond, bpfobj.LbConnStateCONN_UDP)
	r.fromClient(testenv.UDP("10.10.0.2:1", vip, "x"))
	r.atLast(time.Minute, "the flow ends", func() bool { return r.tableEntries(0) == 0 })
	r.wantFollowed(f, "1 open UDP", "1 close UDP")

	// One packet makes no entry.
	r.fromClient(testenv.UDP("10.10.0.2:2", farVIP, "x"))
	r.wantFollowed(f)

	// A port is used again.
	r.establish("10.10.0.2:3", vip)
	r.fromClient(testenv.TCP("10.10.0.2:3", vip, "R"))
	r.syn("10.10.0.2:3", vip)
	r.wantFollowed(f, "3 open SYN_RECV", "3 state SYN_RECV>ESTABLISHED", "3 state ESTABLISHED>CLOSE",
		"3 close CLOSE", "3 open SYN_RECV")

	// Its server is deleted, and orphans end.
	r.turn("expire_nodest_conn=1")
	server := r.establish("10.10.0.2:4", emptyVIP)
	r.followed(f)
	r.must(r.ns.Do(func() error { return r.DeleteServer(gone.Key, server) }))
	r.wantFollowed(f, "4 close ESTABLISHED")
	r.turn("expire_nodest_conn=0")

	// A server sends first.
	r.timeouts(time.Minute, bpfobj.LbConnStateCONN_UDP)
	r.fromServer(testenv.UDP(netip.AddrPortFrom(serverAddr(0), 8080).String(), "10.10.0.2:5060", invite("a@h")))
	r.wantFollowed(f, "5060 open UDP")

	// A client beside its server: replies have the director's address.
	r.turn("hairpin=1")
	beside := netip.AddrPortFrom(serverAddr(20), 7).String()
	opened := r.send(r.progs.LbServer, skBuff{}, testenv.TCP(beside, vip, "S").Frame())
	director, to, err := testenv.Ends(opened.frame)
	r.must(err)
	r.fromServer(testenv.TCP(to.String(), director.String(), "SA"))
	r.fromServer(testenv.TCP(beside, vip, "A"))
	r.fromServer(testenv.TCP(to.String(), director.String(), "FA"))
	got := r.followed(f)
	want := []string{"7 open SYN_RECV", "7 state SYN_RECV>ESTABLISHED", "7 state ESTABLISHED>FIN_WAIT"}
	if diff := cmp.Diff(want, connectionTales(got)); diff != "" {
		t.Fatalf("followed (-want +got):\n%s", diff)
	}
	for _, e := range got {
		if e.Client.String() != beside || e.Virtual.String() != vip || e.Flags[len(e.Flags)-1] != "hairpin" {
			t.Errorf("%+v", e)
		}
	}
}

// A drained server's connections end for their followers, too.
func TestFollowDrain(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.turn("drain_timeout=1")
	f := r.follow(FollowRule{})
	r.establish("10.10.0.2:1", vip)
	r.establish("10.10.0.2:2", vip)
	r.must(r.EditServer(s.Key, realServer(0, 0)))
	r.followed(f)
	r.fromClient(testenv.TCP("10.10.0.2:1", vip, "A")) // ends by itself from now on
	var got []ConnectionEvent
	r.atLast(time.Minute, "the busy connection ends", func() bool {
		got = append(got, r.followed(f)...)
		return len(got) == 1
	})
	r.fromClient(testenv.TCP("10.10.0.2:2", vip, "A"))
	got = append(got, r.followed(f)...)
	if diff := cmp.Diff([]string{"1 close ESTABLISHED", "2 close ESTABLISHED"}, connectionTales(got)); diff != "" {
		t.Errorf("followed (-want +got):\n%s", diff)
	}
}

// Templates are reported to those who ask: when they are made, set aside, and end.
func TestFollowTemplates(t *testing.T) {
	r := newRig(t, small)
	s := persistent(tcpService(vip, "rr"))
	s.Timeout = 5 * time.Second
	r.addService(s, 1, 1)
	sip := sipService()
	sip.Timeout = 5 * time.Second
	r.addService(sip, 1)
	f := r.follow(FollowRule{})
	without := r.follow(FollowRule{Entries: OnlyConnections})
	r.timeouts(5*time.Second, everyState()...)
	r.syn("10.10.0.2:1", vip)
	r.syn("10.10.0.2:2", vip)
	r.must(r.DeleteServer(s.Key, netip.AddrPortFrom(serverAddr(1), 8080)))
	r.syn("10.10.0.2:3", vip)
	r.fromClient(testenv.UDP("10.10.0.3:5060", sipVIP, invite("a@h")))
	want := []string{"template open NONE", "1 open SYN_RECV", "2 open SYN_RECV",
		// The one whose server is gone is replaced.
		"template open NONE", "template close NONE", "template open NONE", "3 open SYN_RECV",
		"template open NONE", "5060 open UDP"}
	got := r.followed(f)
	if diff := cmp.Diff(want, connectionTales(got)); diff != "" {
		t.Fatalf("followed (-want +got):\n%s", diff)
	}
	if e := got[0]; e.Timeout != 5 || e.Client.String() != "10.10.0.2:0" || e.Virtual.String() != vip {
		t.Errorf("the template is %+v", e)
	}
	if one, other := got[7].Template, got[8].Template; one == nil || other == nil || one.Call != other.Call || one.By != "call" {
		t.Errorf("the call's template is %+v, its connection's %+v", one, other)
	}
	r.wantFollowed(without, "1 open SYN_RECV", "2 open SYN_RECV", "3 open SYN_RECV", "5060 open UDP")
	open := map[string]int{"template": 3, "connection": 4}
	r.atLast(time.Minute, "all ends", func() bool {
		for _, e := range r.followed(f) {
			if e.Kind == ConnectionClose && e.IsTemplate {
				open["template"]--
			} else if e.Kind == ConnectionClose {
				open["connection"]--
			}
		}
		// The template that was set aside lingers for a minute.
		return open["template"] <= 1 && open["connection"] == 0
	})
}

// Each follower receives what its rule asks for.
func TestFollowRules(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(service(model.UDP, vip, "rr"), 1)
	r.addService(tcpService(emptyVIP, "rr"), 1)
	mark := model.Service{Key: model.MarkKey(3, model.IPv4), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)}
	r.must(r.AddService(mark), r.AddServer(mark.Key, realServer(1, 1)),
		r.Mark(MarkRule{netip.MustParsePrefix("10.20.0.3/32"), 3}))
	const (
		open, udp, other, marked = "1 open SYN_RECV", "1 open UDP", "2 open SYN_RECV", "3 open SYN_RECV"
		state, reset             = "1 state SYN_RECV>ESTABLISHED", "1 state ESTABLISHED>CLOSE"
		end, again               = "1 close CLOSE", "1 open SYN_RECV"
	)
	for i, c := range []struct {
		name string
		FollowRule
		want []string
	}{
		{"none", FollowRule{}, []string{open, udp, other, marked, state, reset, end, again}},
		{"openings", FollowRule{Kinds: []string{"open"}}, []string{open, udp, other, marked, again}},
		{"states and ends", FollowRule{Kinds: []string{"state", "close"}}, []string{state, reset, end}},
		{"protocol", FollowRule{Protocol: model.UDP}, []string{udp}},
		{"service", FollowRule{Virtual: netip.MustParseAddrPort(emptyVIP)}, []string{other}},
		{"service of two protocols", FollowRule{Virtual: netip.MustParseAddrPort(vip), Kinds: []string{"open"}}, []string{open, udp, again}},
		{"address", FollowRule{Virtual: netip.MustParseAddrPort("10.20.0.1:0"), Protocol: model.TCP}, []string{open, state, reset, end, again}},
		{"another port", FollowRule{Virtual: netip.MustParseAddrPort("10.20.0.1:81")}, nil},
		{"mark", FollowRule{Mark: 3}, []string{marked}},
		{"another mark", FollowRule{Mark: 4}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			outer := r
			r := r.in(t)
			defer func() { outer.Director = r.Director }()
			f := r.follow(c.FollowRule)
			defer r.unfollow(f)
			client := func(port int) string { return fmt.Sprintf("10.10.%d.2:%d", i, port) }
			r.syn(client(1), vip)
			r.fromClient(testenv.UDP(client(1), vip, "x"))
			r.syn(client(2), emptyVIP)
			r.syn(client(3), "10.20.0.3:99")
			r.fromClient(testenv.TCP(client(1), vip, "A"))
			r.fromClient(testenv.TCP(client(1), vip, "R"))
			r.syn(client(1), vip)
			r.wantFollowed(f, c.want...)
		})
	}
	if _, err := (FollowRule{Kinds: []string{"boredom"}}).follower(); err == nil || !strings.Contains(err.Error(), "boredom") {
		t.Errorf("unknown kind: %v", err)
	}
}

// Events that find the ring full are counted, and the reader is told.
func TestFollowLosses(t *testing.T) {
	const n = 200
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	f := r.follow(FollowRule{Ring: os.Getpagesize()})
	r.flood(n, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	heard, lost := 0, uint64(0)
	r.must(f.Each(ctx, func(e ConnectionEvent) error {
		if e.Kind == ConnectionLost {
			lost += e.Lost
			cancel()
		} else if heard++; lost > 0 {
			t.Error("an event that is older than the loss comes behind it")
		}
		return nil
	}))
	if heard == 0 || lost == 0 || heard+int(lost) != n {
		t.Errorf("heard %d and lost %d of %d", heard, lost, n)
	}
	if n, err := f.Lost(); n != 0 || err != nil {
		t.Errorf("lost %d more, %v", n, err)
	}
	if n := r.tableEntries(0); n != 200 {
		t.Errorf("%d connections, want them not to depend on the follower", n)
	}
}

// A follower that was killed costs nothing after its lease; its place is taken by the
// next one.
func TestKilledFollower(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	killed := r.follow(FollowRule{})
	close(killed.stop)
	killed.stopped.Wait()
	killed.closeMaps()
	until := func() (until uint64) {
		r.must(r.maps.ListenedUntil.Lookup(uint32(followLease), &until))
		return until
	}
	r.syn(client1, vip)
	if until() == 0 {
		t.Error("the lease is over already")
	}
	now, err := monotonic()
	r.must(err)
	r.must(r.maps.ListenedUntil.Put(uint32(followLease), now-uint64(time.Second)))
	killed.want.Until = now
	r.must(r.maps.Followers.Put(killed.number, killed.want))
	r.fromClient(testenv.TCP(client1, vip, "A"))
	if until() != 0 {
		t.Errorf("connections are followed until %d", until())
	}
	next := r.follow(FollowRule{})
	if next.number != killed.number {
		t.Errorf("the next one took place %d, not %d", next.number, killed.number)
	}
	// Beside it, the lease of the killed one alone is over.
	old := r.ring(killed.number + 1)
	other := killed.want
	other.Until, other.Owner = now, other.Owner+1
	r.must(r.maps.Followers.Put(killed.number+1, other))
	r.syn("10.10.0.9:9", vip)
	r.wantFollowed(next, "9 open SYN_RECV")
	old.SetDeadline(time.Unix(1, 0))
	if _, err := old.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reported to a follower whose lease is over: %v", err)
	}
	r.unfollow(next)
	if until() != 0 {
		t.Errorf("nobody follows any more until %d", until())
	}
}

// ring makes one for a follower's place.
func (r *rig) ring(number uint32) *ringbuf.Reader {
	r.Helper()
	ring, err := newRing(os.Getpagesize())
	r.must(err)
	defer ring.Close()
	reader, err := ringbuf.NewReader(ring)
	r.must(err, r.maps.FollowRings.Put(number, ring))
	r.Cleanup(func() { reader.Close() })
	return reader
}

// There is room for four; tracers have their own places, and each its own ring.
func TestSeveralFollowers(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	tr := r.trace(Filter{})
	defer r.untrace(tr)
	var all []*Follower
	for range r.maps.Followers.MaxEntries() {
		all = append(all, r.follow(FollowRule{}))
	}
	r.close()
	err := r.ns.Do(func() error { _, err := Follow(FollowRule{}); return err })
	if err == nil || !strings.Contains(err.Error(), "4 others are following connections already") {
		t.Errorf("one too many: %v", err)
	}
	r.open(Sizes{})
	r.syn(client1, vip)
	for _, f := range all {
		r.wantFollowed(f, "1234 open SYN_RECV")
	}
	if got := r.told(tr); len(got) != 1 {
		t.Errorf("a tracer heard %v", tales(got))
	}
}

// A follower ends when it is told to, or when the director is removed.
func TestFollowerEnds(t *testing.T) {
	r := newRig(t, small)
	f := r.follow(FollowRule{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Each(ctx, func(ConnectionEvent) error { return nil }); err != nil {
		t.Errorf("told to end: %v", err)
	}
	r.unfollow(f)
	f = r.follow(FollowRule{})
	r.close()
	r.must(r.ns.Do(func() error { return Detach(true) }))
	err := f.Each(context.Background(), func(ConnectionEvent) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "the director was removed") {
		t.Errorf("without a director: %v", err)
	}
	r.must(f.Close())
	r.open(small)
}

// A reader that enters and deletes as events say has the table in the end, with two CPUs'
// packets and the sweep at work; each connection has one opening and one end.
func TestFollowedTable(t *testing.T) {
	r := auditRig(t)
	f := r.follow(FollowRule{Ring: 16 << 20})
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	type key struct {
		protocol        string
		client, virtual netip.AddrPort
	}
	table, opened, reported := map[key]ConnectionEvent{}, map[key]int{}, 0
	var failure error
	reading.Go(func() {
		failure = f.Each(ctx, func(e ConnectionEvent) error {
			k := key{e.Protocol, e.Client, e.Virtual}
			reported++
			switch e.Kind {
			case ConnectionLost:
				return fmt.Errorf("%d events are lost", e.Lost)
			case ConnectionOpen:
				opened[k]++
			case ConnectionClose:
				opened[k]--
				delete(table, k)
				return nil
			}
			table[k] = e
			return nil
		})
	})
	stop := r.traffic(len(auditServices) + 2)
	time.Sleep(4 * time.Second)
	stop()
	// Nothing may change any more: read only when what ends soon has ended.
	r.timeouts(time.Hour, everyState()...)
	time.Sleep(2500 * time.Millisecond)
	r.atLast(time.Minute, "every event is read", func() bool { return f.reader.AvailableBytes() == 0 })
	var there []model.Connection
	for c, err := range r.Connections(ConnectionFilter{}) {
		r.must(err)
		there = append(there, c)
	}
	cancel()
	reading.Wait()
	r.must(failure)
	if reported < 1000 || len(there) < 100 {
		t.Fatalf("%d events, %d connections", reported, len(there))
	}
	for _, c := range there {
		name := strings.ToLower(c.Protocol.String())
		k := key{name, c.Client, c.Virtual}
		e, known := table[k]
		if !known || e.State != c.State && !e.IsTemplate || e.Server != c.Server {
			t.Errorf("the table has %+v, by the events it is %+v", c, e)
		}
		if opened[k] != 1 {
			t.Errorf("%+v: %d openings more than ends", c, opened[k])
		}
		delete(table, k)
		delete(opened, k)
	}
	for k, e := range table {
		t.Errorf("by the events there is %v: %+v", k, e)
	}
	for k, n := range opened {
		if n != 0 {
			t.Errorf("%v: %d openings more than ends", k, n)
		}
	}
	t.Logf("%d events, %d connections", reported, len(there))
	r.wantClean("after following")
}
