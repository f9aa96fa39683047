// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"testing"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// What bpf/follow.h promises of the order of events, with two CPUs.

// followHere begins to follow the variant's director, whose time is virtual: the lease never ends.
func (x *interleaved) followHere(rule FollowRule) *Follower {
	x.Helper()
	want, err := rule.follower()
	x.must(err)
	f := &Follower{}
	f.kind, f.want = following, want
	x.must(f.begin(x.Director, followerMaps(x.Director)))
	f.want.Until = ^uint64(0) >> 1
	x.must(f.places.Put(f.number, f.want), f.until.Put(f.kind.until, f.want.Until))
	x.Cleanup(f.closeMaps)
	return f
}

// A has opened a connection that B removes before A reports it.
func TestRaceFollowOpenedAndRemoved(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	x.addService(s, 1)
	x.turn("expire_nodest_conn=1")
	f := x.followHere(FollowRule{})
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERTED, testenv.TCP(client1, vip, "S"))
	x.must(x.ns.Do(func() error { return x.DeleteServer(s.Key, netip.AddrPortFrom(serverAddr(0), 8080)) }))
	x.wantFollowed(f, "1234 close SYN_RECV")
	a.finish()
	x.wantFollowed(f, "1234 open SYN_RECV over")
}

// A has changed a connection's state, and B removes it before A reports that: behind
// its end there is nothing.
func TestRaceFollowStateOfTheRemoved(t *testing.T) {
	for _, path := range []string{"fast", "whole"} {
		t.Run(path, func(t *testing.T) {
			x := newInterleaved(t)
			s := tcpService(vip, "rr")
			x.addService(s, 1)
			x.turn("expire_nodest_conn=1")
			f := x.followHere(FollowRule{})
			x.syn(client1, vip)
			ack := testenv.TCP(client1, vip, "A")
			a := x.stop(lbtest.LbHookPointPOINT_CONN_MOVED, func() (err error) {
				if path == "fast" {
					_, err = x.clientRun(ack)
				} else {
					_, err = run(x.progs.LbWhole, x.arriving(x.progs.LbClient, skBuff{}), ack.Frame(), 0)
				}
				return err
			})
			x.must(x.ns.Do(func() error { return x.DeleteServer(s.Key, netip.AddrPortFrom(serverAddr(0), 8080)) }))
			x.wantFollowed(f, "1234 open SYN_RECV", "1234 close ESTABLISHED")
			a.finish()
			x.wantFollowed(f)
		})
	}
}

// Likewise, and B opens the flow's next one: what A reports late is true of that one.
func TestRaceFollowStateOfTheSuccessor(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	f := x.followHere(FollowRule{})
	x.syn(client1, vip)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_MOVED, testenv.TCP(client1, vip, "A"))
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "S"))
	x.wantFollowed(f, "1234 open SYN_RECV", "1234 state ESTABLISHED>CLOSE", "1234 close CLOSE", "1234 open SYN_RECV")
	a.finish()
	x.wantFollowed(f, "1234 state SYN_RECV>SYN_RECV")
	x.wantOver()
}

// Two CPUs change a state one after the other, and report it the other way round: both
// events have the state that the connection has.
func TestRaceFollowTwoStates(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	f := x.followHere(FollowRule{})
	x.syn(client1, vip)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_MOVED, testenv.TCP(client1, vip, "A"))
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "FA"))
	a.finish()
	x.wantFollowed(f, "1234 open SYN_RECV", "1234 state ESTABLISHED>CLOSE_WAIT", "1234 state SYN_RECV>CLOSE_WAIT")
	x.wantOver()
}
