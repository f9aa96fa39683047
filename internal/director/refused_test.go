// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The kernel refuses updates and deletes of the data plane's maps (bpf/element.h). Entries of the
// connection table are none of these, but the template of a call stays in it, dead, until the call is
// removed. Whatever is refused, the call can be opened again when the sweep or a packet of it has
// come by, nothing is left behind, and counts are right.

// refusedErrors are the errors by which kernels do that.
var refusedErrors = []unix.Errno{unix.EBUSY, unix.EDEADLK, unix.ETIMEDOUT, unix.ENOMEM}

// lifetime is that of each connection and template here, and comeBy the time in which the
// sweep comes to what was left to it.
const (
	lifetime = 10 * time.Second
	comeBy   = 3 * TickLength
)

// callMaps are the maps that change when a call is opened and when it ends.
var callMaps = []lbtest.LbFaultMap{lbtest.LbFaultMapFAULT_calls, lbtest.LbFaultMapFAULT_callNumbers}

// refusedWorld is a director in virtual time, with a service of calls.
func refusedWorld(t *testing.T) *interleaved {
	x := newInterleaved(t)
	x.timeouts(lifetime, bpfobj.LbConnStateCONN_UDP)
	sip := sipService()
	sip.Timeout = lifetime
	x.serve(sip, ipv4.real(8, 8080))
	return x
}

var firstOfCall = testenv.UDP(sipClient(1), sipVIP, invite("a@h"))

// begins sends the first packet of a call, and says what became of it.
func (x *interleaved) begins() verdict {
	x.Helper()
	return x.fromClientOn(cpuB, firstOfCall).verdict
}

// ends lets the time of the call's entries be over, and the sweep come by: its template ends behind
// its connection, or if the sweep came by it first, a minute later.
func (x *interleaved) ends() {
	x.Helper()
	x.wait(lifetime + time.Second)
	if slices.ContainsFunc(x.allEntries(), func(e entry) bool { return e.Flags&connDead == 0 }) {
		x.wait(time.Minute + time.Second)
	}
}

// wait lets some virtual time pass, and the sweep come by once.
func (x *interleaved) wait(d time.Duration) {
	x.Helper()
	x.advance(d)
	x.sweepTable()
}

// wantAudited checks that an audit finds nothing. Virtual time runs ahead of the clock that
// the auditor reads, by which the table's stands still.
func (x *interleaved) wantAudited(when string) {
	x.Helper()
	report, err := x.Audit(context.Background(), AuditOptions{Interval: time.Millisecond})
	x.must(err)
	for _, f := range report.Findings {
		if f.Kind != AuditClockStopped.String() {
			x.Errorf("%s: %+v", when, f)
		}
	}
}

// wantNothingLeft checks that no map has anything of a connection, no server counts one,
// and all lines are free.
func (x *interleaved) wantNothingLeft(when string) {
	x.Helper()
	for _, m := range []*ebpf.Map{x.maps.Calls, x.maps.CallNumbers} {
		if n := x.entries(m); n != 0 {
			x.Errorf("%s: %s has %d entries", when, m, n)
		}
	}
	x.wantUncounted(when)
	if n := x.linesInUse(); n != 0 {
		x.Errorf("%s: %d lines of the connection table are in use", when, n)
	}
}

// wantUncounted checks that the connection table is empty, and no server counts anything.
func (x *interleaved) wantUncounted(when string) {
	x.Helper()
	if four, six := x.conns(model.IPv4), x.conns(model.IPv6); four+six != 0 {
		x.Errorf("%s: the connection table has %d entries of IPv4, %d of IPv6", when, four, six)
	}
	set, err := x.config()
	x.must(err)
	for id := range set.Servers {
		if l := x.load(id); l.Active != 0 || l.Inactive != 0 || l.Persistent != 0 {
			x.Errorf("%s: server %d counts %d active, %d inactive connections, %d templates", when, id,
				int32(l.Active), int32(l.Inactive), int32(l.Persistent))
		}
	}
}

// refusedCases runs a test for each map that a call changes, and error.
func refusedCases(t *testing.T, remove bool, errnos []unix.Errno, test func(x *interleaved, refuse func(times int) lbtest.Fault)) {
	x := refusedWorld(t)
	for _, m := range callMaps {
		for _, errno := range errnos {
			what := map[bool]string{false: "update", true: "delete"}[remove]
			ok := t.Run(fmt.Sprintf("%s of %s/%s", what, m, unix.ErrnoName(errno)), func(t *testing.T) {
				sub := *x
				sub.rig = x.in(t)
				test(&sub, func(times int) lbtest.Fault {
					return x.Fail(lbtest.Change{Map: m, Delete: remove}, errno, 0, times)
				})
				sub.pass(2 * time.Minute) // templates linger
				sub.wantNothingLeft("in the end")
				sub.wantAudited("in the end")
			})
			if !ok {
				return // the tables are not empty
			}
		}
	}
}

// A delete that is refused at the end of a call is tried again by the sweep, each time it
// comes by, until the kernel allows it.
func TestRefusedDeletes(t *testing.T) {
	for times, errnos := range map[int][]unix.Errno{1: refusedErrors, 3: refusedErrors[:1]} {
		t.Run(fmt.Sprintf("%d times", times), func(t *testing.T) {
			refusedCases(t, true, errnos, func(x *interleaved, refuse func(int) lbtest.Fault) {
				if v := x.begins(); v != redirect {
					x.Fatalf("the first packet: %s", v)
				}
				fault := refuse(times)
				x.ends()
				if fault.Hits() == 0 {
					x.Fatal("nothing was refused")
				}
				x.wantLeft("left to the sweep", 1)
				for try := 0; fault.Hits() < times; try++ {
					if try == times {
						x.Fatalf("%d of %d deletes were refused", fault.Hits(), times)
					}
					x.wait(comeBy)
				}
				x.wait(comeBy)
				x.wantAudited("removed")
				if v := x.begins(); v != redirect {
					x.Fatalf("the call again: %s", v)
				}
			})
		})
	}
}

// wantLeft checks that so many dead entries are left to the sweep, which servers still count; -1:
// any number.
func (x *interleaved) wantLeft(when string, n int) {
	x.Helper()
	left := slices.DeleteFunc(x.allEntries(), func(e entry) bool { return e.Flags&connDead == 0 })
	for _, e := range left {
		if e.Flags&connLeft != connLeft {
			x.Errorf("%s: %s is dead, and was not left to the sweep", when, flowText(e.Flow))
		}
	}
	if n >= 0 && len(left) != n {
		x.Errorf("%s: %d dead entries, want %d", when, len(left), n)
	}
	x.wantAudited(when)
}

// While a delete of a dead template is refused, packets of the call are dropped, or open it under
// another number: they are sent again. When the kernel allows it, the sweep removes the rest.
func TestRefusedDeleteOfCall(t *testing.T) {
	refusedCases(t, true, refusedErrors[:1], func(x *interleaved, refuse func(times int) lbtest.Fault) {
		if v := x.begins(); v != redirect {
			x.Fatalf("the first packet: %s", v)
		}
		fault := refuse(1 << 20)
		x.ends()
		if fault.Hits() == 0 {
			x.Fatal("nothing was refused")
		}
		if v := x.begins(); v != drop && v != redirect {
			x.Errorf("%s while something of the former call is left", v)
		}
		x.wantLeft("left again", 1)
		fault.End()
		if v := x.begins(); v != redirect {
			x.Errorf("the call again: %s", v)
		}
		x.wait(comeBy) // of the former number only the sweep knows
		x.wantLeft("open again", 0)
	})
}

// An update that is refused when a call is opened refuses the packet, and undoes what was done before.
func TestRefusedUpdates(t *testing.T) {
	refusedCases(t, false, refusedErrors, func(x *interleaved, refuse func(int) lbtest.Fault) {
		fault := refuse(1)
		if v := x.begins(); v != drop {
			x.Errorf("the packet: %s, want drop", v)
		}
		if fault.Hits() == 0 {
			x.Error("nothing was refused")
		}
		fault.End()
		x.wantAudited("refused")
		if v := x.begins(); v != redirect {
			x.Errorf("the packet again: %s", v)
		}
		x.wantAudited("open")
	})
}

// What an update that is refused would undo cannot be removed either: that is left to the
// sweep, too.
func TestRefusedUpdateAndDelete(t *testing.T) {
	refusedCases(t, false, refusedErrors[:1], func(x *interleaved, refuse func(int) lbtest.Fault) {
		fault := refuse(1)
		var deletes []lbtest.Fault
		for _, m := range callMaps {
			deletes = append(deletes, x.Fail(lbtest.Change{Map: m, Delete: true}, unix.EBUSY, 0, 1))
		}
		if v := x.begins(); v != drop {
			x.Errorf("the packet: %s, want drop", v)
		}
		fault.End()
		x.wantLeft("refused", -1)
		for range callMaps {
			x.wait(comeBy)
		}
		for _, d := range deletes {
			d.End()
		}
		x.wait(comeBy)
		x.wantLeft("undone", 0)
		if v := x.begins(); v != redirect {
			x.Errorf("the packet again: %s", v)
		}
	})
}

// adopted marks all connections and templates as an upgrade's.
func (x *interleaved) adopted() {
	x.Helper()
	for _, e := range x.allEntries() {
		x.changeConn(e.Index, func(c *bpfobj.LbConn) { c.Flags |= uint8(bpfobj.LbConnFlagCONN_ADOPTED) })
	}
}

// The sweep comes to a connection that another CPU has killed and not yet removed: that is not the
// sweep's. A flag of connections that were adopted has another meaning then.
func TestRaceSweepBeforeRemoval(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		t.Run(fmt.Sprintf("adopted %t", adopted), func(t *testing.T) {
			x := newInterleaved(t)
			s := x.persistent()
			x.turn("expire_nodest_conn=1")
			server := x.establish(client1, vip)
			if adopted {
				x.adopted()
			}
			// It lets its template go between its death and its removal.
			a := x.stop(lbtest.LbHookPointPOINT_CONN_HOLD, func() error { return x.DeleteServer(s.Key, server) })
			x.pass(40 * time.Second)
			if n := x.conns(); n != 2 {
				t.Errorf("%d entries: the sweep removed what another CPU is about to", n)
			}
			a.finish()
			x.wantUncounted("removed")
		})
	}
}

// A template whose server is gone is not set aside if there is no room for that: its
// connections keep it, and the next one waits.
func TestRefusedSettingAside(t *testing.T) {
	x := newInterleavedSized(t, crowdedSizes)
	s := x.persistent()
	x.serve(tcpService(otherVIP, "rr"), ipv4.real(8, 8080))
	server := x.establish(client1, vip)
	n := 0
	for ; x.freeLines(model.IPv4) > 0; n++ {
		x.fromClientOn(n%2, testenv.TCP(nthClient(1000+n), otherVIP, "S"))
	}
	x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, server) })
	syn := testenv.TCP("10.10.0.2:4321", vip, "S")
	if v := x.fromClientOn(cpuB, syn).verdict; v != drop {
		t.Errorf("the SYN: %s, want drop", v)
	}
	x.wantControlled("refused")
	x.wantAudited("refused")
	for i := range 8 {
		x.fromServerOn(cpuB, testenv.TCP(at(ipv4.server(8), 8080), nthClient(1000+i), "RA"))
	}
	x.pass(11 * time.Second) // CLOSE lasts 10 s
	if v := x.fromClientOn(cpuB, syn).verdict; v != redirect {
		t.Errorf("the SYN again: %s, %d lines are free", v, x.freeLines(model.IPv4))
	}
	x.wantControlled("set aside")
	x.wantAudited("set aside")
	x.wantOver()
}

// A block that the kernel refuses to allocate: the connection is refused, and nothing is lost by
// that. Established ones continue, and the next one is opened when there is memory.
func TestRefusedBlock(t *testing.T) {
	for _, errno := range refusedErrors {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			x := newInterleaved(t)
			x.addService(tcpService(vip, "rr"), 1)
			x.establishOn(cpuB, client1, vip) // by a block in a page
			x.withoutPages()
			fault := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_spareBlocks}, errno, 0, 1<<20)
			opened := 1
			reasons := x.reasonsOf(func() {
				for opened < 1000 && x.fromClientOn(cpuB, testenv.TCP(nthClient(1000+opened), vip, "S")).verdict == redirect {
					opened++
				}
			})
			if fault.Hits() == 0 {
				t.Fatalf("%d connections, and nothing was refused", opened)
			}
			if opened != blockEntries {
				t.Errorf("%d connections in a block of %d entries", opened, blockEntries)
			}
			if reasons["drop table full"] != 1 || len(reasons) != 1 {
				t.Errorf("reasons %v, want one that the table is full", reasons)
			}
			if v := x.fromClientOn(cpuB, testenv.TCP(client1, vip, "A")).verdict; v != redirect {
				t.Errorf("an established one: %s", v)
			}
			if n := x.linesInUse(); n != opened {
				t.Errorf("%d lines are in use by %d connections", n, opened)
			}
			x.wantAudited("refused")
			x.wantSound("refused")
			fault.End()
			if v := x.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S")).verdict; v != redirect {
				t.Errorf("the next connection: %s", v)
			}
			if _, b, err := x.blocks(); err != nil || b.Spare != 1 {
				t.Errorf("%d blocks are beside pages, %v", b.Spare, err)
			}
			x.wantAudited("open")
			x.wantOver()
			x.wantNothingLeft("in the end")
		})
	}
}

// A call whose template may not be used any more is taken from it by the next packet.
func TestRefusedUnlinkOfCall(t *testing.T) {
	x := newInterleaved(t)
	s := sipService()
	x.addService(s, 1, 1)
	packet := testenv.UDP(sipClient(1), sipVIP, invite("a@h"))
	first, err := x.fromClientOn(cpuB, packet).server()
	x.must(err)
	x.turn("expire_quiescent_template=1")
	for i := range 2 {
		if quiet := realServer(i, 0); quiet.Addr == first.Addr() {
			x.onCPU(cpuB, func() error { return x.EditServer(s.Key, quiet) })
		}
	}
	again := testenv.UDP(netip.AddrPortFrom(netip.MustParseAddrPort(sipClient(1)).Addr(), 5099).String(), sipVIP, invite("a@h"))
	x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_calls, Delete: true}, unix.EBUSY, 0, 1)
	if v := x.fromClientOn(cpuB, again).verdict; v != drop {
		t.Errorf("the packet: %s, want drop", v)
	}
	second, err := x.fromClientOn(cpuB, again).server()
	x.must(err)
	if second == first {
		t.Errorf("the call goes to %s, which gets no new connections", second)
	}
	x.wantAudited("with the other server")
}

// A table of a scheduler that the kernel refuses is made again; if it refuses for long, the
// command says so, and the next one makes it.
func TestRefusedSchedulerTables(t *testing.T) {
	for scheduler, m := range map[string]lbtest.LbFaultMap{
		"sh": lbtest.LbFaultMapFAULT_bucketTables, "mh": lbtest.LbFaultMapFAULT_maglevs,
	} {
		for _, errno := range refusedErrors {
			t.Run(scheduler+"/"+unix.ErrnoName(errno), func(t *testing.T) {
				x := newInterleaved(t)
				s := tcpService(vip, scheduler)
				x.addService(s, 1)
				update, remove := lbtest.Change{Map: m}, lbtest.Change{Map: m, Delete: true}
				few := x.Fail(update, errno, 0, refusedTries-1)
				x.onCPU(cpuB, func() error { return x.AddServer(s.Key, realServer(1, 1)) })
				if n := few.Hits(); n != refusedTries-1 {
					t.Errorf("%d updates were refused", n)
				}
				many := x.Fail(update, errno, 0, 1<<20)
				x.onCPU(cpuB, func() error {
					if err := x.EditServer(s.Key, realServer(1, 3)); !errors.Is(err, errno) {
						t.Errorf("an edit whose table is refused: %v", err)
					}
					return nil
				})
				many.End()
				x.onCPU(cpuB, func() error { return x.EditServer(s.Key, realServer(1, 2)) })
				x.wantAudited("repaired")
				seen := map[netip.AddrPort]bool{}
				for i := range 64 {
					server, err := x.fromClientOn(cpuB, testenv.TCP(nthClient(i), vip, "S")).server()
					x.must(err)
					seen[server] = true
				}
				if len(seen) != 2 {
					t.Errorf("connections went to %v", seen)
				}
				once := x.Fail(remove, errno, 0, 1)
				x.onCPU(cpuB, func() error { return x.DeleteService(s.Key) })
				if n := once.Hits(); n != 1 {
					t.Errorf("%d deletes were refused", n)
				}
				x.wantAudited("deleted")
			})
		}
	}
}

// What caches lose costs nothing but the cache: packets go on.
func TestRefusedCaches(t *testing.T) {
	x := newInterleaved(t)
	for i, c := range []struct {
		scheduler string
		m         lbtest.LbFaultMap
	}{{"lblc", lbtest.LbFaultMapFAULT_localities}, {"lblcr", lbtest.LbFaultMapFAULT_localitySets}} {
		x.addService(tcpService(nthVIP(i), c.scheduler), 1, 1)
		fault := x.Fail(lbtest.Change{Map: c.m}, unix.ENOMEM, 0, 1)
		if v := x.fromClientOn(cpuB, testenv.TCP(client1, nthVIP(i), "S")).verdict; v != redirect || fault.Hits() != 1 {
			t.Errorf("%s: %s, %d updates were refused", c.scheduler, v, fault.Hits())
		}
	}
	x.wantAudited("after both")
}
