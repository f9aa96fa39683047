// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"net/netip"
	"testing"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What a packet has read of its service is another one's when it is used: the
// element of the table, its servers' extent of `order`, their ids. In each of
// these tests a SYN is stopped on CPU A, and CPU B deletes its service and adds
// another, which has other servers; the SYN may be lost, but it must not go to
// one of those.

// otherVIP is the service that comes.
var otherVIP = nthVIP(1)

// replaced has the first service replaced while its client's SYN is stopped.
func replaced(t *testing.T, scheduler string, at lbtest.LbHookPoint, replace func(x *interleaved, old, fresh model.Service) error) {
	replacedIn(newInterleaved(t), scheduler, at, replace)
}

func replacedIn(x *interleaved, scheduler string, at lbtest.LbHookPoint, replace func(x *interleaved, old, fresh model.Service) error) {
	x.Helper()
	old, fresh := tcpService(vip, scheduler), tcpService(otherVIP, scheduler)
	x.addService(old, 1, 1)
	a, v := x.stopPacket(at, testenv.TCP(client1, vip, "S"))
	x.onCPU(cpuB, func() error { return replace(x, old, fresh) })
	a.finish()
	x.wantNoneOf(fresh, v)
}

// wantNoneOf checks that a SYN to the first service did not go to a server of
// another.
func (x *interleaved) wantNoneOf(fresh model.Service, v *result) {
	x.Helper()
	if v.verdict == redirect && v.frame[14+9] != ipv4.icmp { // it may be refused
		to, err := v.server()
		x.must(err)
		if to.Addr() != serverAddr(0) && to.Addr() != serverAddr(1) {
			x.Errorf("a SYN to %s goes to %s, a server of %s alone", vip, to, otherVIP)
		}
	}
	// What the other service's servers count is its own connections.
	for _, s := range x.status(fresh.Key).Servers {
		if s.Active+s.Inactive != 0 {
			x.Errorf("server %s of %s has %d connections, of another service", s.Addr, otherVIP, s.Active+s.Inactive)
		}
	}
	x.wantSound("after the SYN")
	x.wantOver()
}

// byAnother deletes a service and adds another.
func byAnother(x *interleaved, old, fresh model.Service) error {
	return errors.Join(x.DeleteService(old.Key), x.AddService(fresh),
		x.AddServer(fresh.Key, realServer(5, 1)), x.AddServer(fresh.Key, realServer(6, 1)))
}

// byAnotherId is likewise, and a third service gets the id.
func byAnotherId(x *interleaved, old, fresh model.Service) error {
	return errors.Join(x.DeleteService(old.Key), x.AddService(tcpService(nthVIP(2), "rr")), x.AddService(fresh),
		x.AddServer(fresh.Key, realServer(5, 1)), x.AddServer(fresh.Key, realServer(6, 1)))
}

// byAnotherElement is likewise, so that the deleted one's element is the other
// service's in the end.
func byAnotherElement(x *interleaved, old, fresh model.Service) error {
	third := tcpService(nthVIP(2), "rr")
	return errors.Join(x.DeleteService(old.Key), x.AddService(third), x.AddService(fresh),
		x.AddServer(fresh.Key, realServer(5, 1)), x.EditService(third), x.AddServer(fresh.Key, realServer(6, 1)))
}

// The packet has the element, and copies it field by field.
func TestRaceServiceElement(t *testing.T) {
	for _, scheduler := range []string{"rr", "wlc"} {
		t.Run(scheduler, func(t *testing.T) {
			replaced(t, scheduler, lbtest.LbHookPointPOINT_PICK_FOR, byAnotherElement)
		})
	}
}

// It has copied the element, and walks over the list that it names.
func TestRaceExtent(t *testing.T) {
	for _, scheduler := range []string{"rr", "wlc"} {
		t.Run(scheduler, func(t *testing.T) {
			replaced(t, scheduler, lbtest.LbHookPointPOINT_CHOOSE, byAnother)
		})
	}
}

// Likewise, and the service's id is a third one's.
func TestRaceExtentOfAnotherId(t *testing.T) {
	for _, scheduler := range []string{"rr", "wlc"} {
		t.Run(scheduler, func(t *testing.T) {
			replaced(t, scheduler, lbtest.LbHookPointPOINT_CHOOSE, byAnotherId)
		})
	}
}

// It has chosen a server, whose id is another server's: there is no other one, so
// the edit waits.
func TestRaceServerId(t *testing.T) {
	x := newInterleavedSized(t, Sizes{Services: 16, Servers: 2, Connections: 1 << 10})
	old, fresh := tcpService(vip, "rr"), tcpService(otherVIP, "rr")
	x.addService(old, 1, 1)
	a, v := x.stopPacket(lbtest.LbHookPointPOINT_CONN_OPEN, testenv.TCP(client1, vip, "S"))
	a.wantHeld("the reuse of a server's id", func() error { return byAnother(x, old, fresh) })
	x.wantNoneOf(fresh, v)
}

// It has a table of servers, whose element is another service's.
func TestRaceTableOfServers(t *testing.T) {
	for _, scheduler := range []string{"sh", "dh", "mh"} {
		t.Run(scheduler, func(t *testing.T) {
			replaced(t, scheduler, lbtest.LbHookPointPOINT_TABLE, byAnother)
		})
	}
}

// Its table of servers is gone, as its service has another scheduler: the SYN is not
// refused, but dropped.
func TestRaceTableGone(t *testing.T) {
	for _, scheduler := range []string{"sh", "dh", "mh"} {
		t.Run(scheduler, func(t *testing.T) {
			x := newInterleaved(t)
			s := tcpService(vip, scheduler)
			x.addService(s, 1, 1)
			a, v := x.stopPacket(lbtest.LbHookPointPOINT_CHOOSE, testenv.TCP(client1, vip, "S"))
			s.Scheduler = "rr"
			x.onCPU(cpuB, func() error { return x.EditService(s) })
			a.finish()
			if v.verdict != drop {
				x.Errorf("a SYN that was late for %s: %s, want it dropped", scheduler, v.verdict)
			}
			x.wantSound("after the SYN")
		})
	}
}

// A server's packet that would open a connection has its service's element, which
// becomes another one's: the packet does not count for that one.
func TestRaceOutboundService(t *testing.T) {
	x := newInterleaved(t)
	old := sipService()
	old.Flags &^= model.Persistent
	fresh := old
	fresh.Key = tcpService(otherVIP, "rr").Key
	fresh.Key.Protocol = model.UDP
	x.addService(old, 1)
	var v result
	a := x.stop(lbtest.LbHookPointPOINT_PICK_FOR, func() (err error) {
		v, err = x.serverRun(testenv.UDP(netip.AddrPortFrom(serverAddr(0), 8080).String(), client1, "x"))
		return err
	})
	x.onCPU(cpuB, func() error { return byAnotherElement(x, old, fresh) })
	a.finish()
	if v.verdict == redirect {
		t.Errorf("the packet leaves for a service that is gone")
	}
	if n := x.status(fresh.Key).Stats.Conns; n != 0 {
		t.Errorf("%s counts %d connections of another service's server", otherVIP, n)
	}
	x.wantSound("after the packet")
	x.wantOver()
}
