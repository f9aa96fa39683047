// SPDX-License-Identifier: Apache-2.0

package director

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The kernel refuses updates and deletes of the data plane's maps (bpf/element.h).
// Whatever it refuses, the flow can be opened again within the time that the wheel needs
// to come by, nothing is left behind, and counts are right.

// refusedErrors are the errors by which kernels do that.
var refusedErrors = []unix.Errno{unix.EBUSY, unix.EDEADLK, unix.ETIMEDOUT, unix.ENOMEM}

// lifetime is that of each connection and template here, and comeBy the time in which the
// wheel comes to what was left to it.
const (
	lifetime = 10 * time.Second
	comeBy   = 3 * WheelTickLength
)

// refusedStory is a connection with something in other tables.
type refusedStory struct {
	name       string
	packet     testenv.Packet // opens it
	fromServer bool
	// How often changes of a kind of map are made when it is opened and when it ends, at
	// least.
	maps map[lbtest.LbFaultMap]int
}

// refusedWorld is a director in virtual time, with services for all stories.
func refusedWorld(t *testing.T) (*interleaved, []refusedStory) {
	x := newInterleaved(t)
	x.turn("hairpin=1")
	x.timeouts(lifetime, bpfobj.LbConnStateTCP_SYN_RECV, bpfobj.LbConnStateCONN_UDP)
	sip := sipService()
	sip.Timeout = lifetime
	x.serve(sip, ipv4.real(8, 8080))
	var all []refusedStory
	for _, f := range families {
		x.serve(service(model.TCP, at(f.vip(1), 80), "rr"), f.real(0, 8080))
		x.serve(service(model.TCP, at(f.vip(2), 80), "rr"), f.real(0, 8080))
		sticky := persistent(service(model.TCP, at(f.vip(3), 80), "rr"))
		sticky.Timeout = lifetime
		x.serve(sticky, f.real(3, 8080))
		conns, reverse := lbtest.LbFaultMapFAULT_conns4, lbtest.LbFaultMapFAULT_reverse4
		if f.number == model.IPv6 {
			conns, reverse = lbtest.LbFaultMapFAULT_conns6, lbtest.LbFaultMapFAULT_reverse6
		}
		type of = map[lbtest.LbFaultMap]int
		client := at(f.client, 1234)
		all = append(all,
			refusedStory{f.name + " connection", testenv.TCP(client, at(f.vip(1), 80), "S"), false, of{conns: 1}},
			refusedStory{f.name + " with an entry for replies", testenv.TCP(client, at(f.vip(2), 80), "S"), false, of{conns: 1, reverse: 1}},
			refusedStory{f.name + " with a template", testenv.TCP(client, at(f.vip(3), 80), "S"), false, of{conns: 2}},
			refusedStory{f.name + " hairpin", testenv.TCP(at(f.server(20), 40000), at(f.vip(1), 80), "S"), true,
				of{conns: 1, reverse: 1, lbtest.LbFaultMapFAULT_hairpins: 1}},
		)
	}
	return x, append(all, refusedStory{"call", testenv.UDP(sipClient(1), sipVIP, invite("a@h")), false, map[lbtest.LbFaultMap]int{
		lbtest.LbFaultMapFAULT_conns4: 2, lbtest.LbFaultMapFAULT_calls: 1, lbtest.LbFaultMapFAULT_callNumbers: 1,
	}})
}

// begins sends the packet of a story, and says what became of it.
func (x *interleaved) begins(s refusedStory) verdict {
	x.Helper()
	if s.fromServer {
		return x.fromServerOn(cpuB, s.packet).verdict
	}
	return x.fromClientOn(cpuB, s.packet).verdict
}

// wait lets some virtual time pass, and the wheel come by once.
func (x *interleaved) wait(d time.Duration) {
	x.Helper()
	x.advance(d)
	x.turnWheel()
}

// wantAudited checks that an audit finds nothing. Virtual time runs ahead of the clock that
// the auditor reads, by which the wheel's stands still.
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
// and no timer entry is in use.
func (x *interleaved) wantNothingLeft(when string) {
	x.Helper()
	for _, m := range []*ebpf.Map{x.maps.Reverse4, x.maps.Reverse6, x.maps.Hairpins, x.maps.Calls, x.maps.CallNumbers} {
		if n := x.entries(m); n != 0 {
			x.Errorf("%s: %s has %d entries", when, m, n)
		}
	}
	x.wantUncounted(when)
	if free, taken := x.freeEntries(), x.takenEntries(); free != taken {
		x.Errorf("%s: of %d timer entries that were taken %d are free again", when, taken, free)
	}
}

// wantUncounted checks that the connection table is empty, and no server counts anything.
func (x *interleaved) wantUncounted(when string) {
	x.Helper()
	if four, six := x.entries(x.maps.Conns4), x.entries(x.maps.Conns6); four+six != 0 {
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

// refusedCases runs a test for each story, change of a map that it makes, and error.
func refusedCases(t *testing.T, remove bool, errnos []unix.Errno, test func(x *interleaved, s refusedStory, refuse func(times int) lbtest.Fault)) {
	x, stories := refusedWorld(t)
	for _, s := range stories {
		for m, changes := range s.maps {
			for skip := range changes {
				for _, errno := range errnos {
					what := map[bool]string{false: "update", true: "delete"}[remove]
					name := fmt.Sprintf("%s/%s of %s %d/%s", s.name, what, m, skip+1, unix.ErrnoName(errno))
					ok := t.Run(name, func(t *testing.T) {
						sub := *x
						sub.rig = x.in(t)
						test(&sub, s, func(times int) lbtest.Fault {
							return x.Fail(lbtest.Change{Map: m, Delete: remove}, errno, skip, times)
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
	}
}

// A delete that is refused at the end of a connection is tried again by the wheel, once a
// tick, until the kernel allows it.
func TestRefusedDeletes(t *testing.T) {
	for times, errnos := range map[int][]unix.Errno{1: refusedErrors, 3: refusedErrors[:1]} {
		t.Run(fmt.Sprintf("%d times", times), func(t *testing.T) {
			refusedCases(t, true, errnos, func(x *interleaved, s refusedStory, refuse func(int) lbtest.Fault) {
				if v := x.begins(s); v != redirect {
					x.Fatalf("the first packet: %s", v)
				}
				fault := refuse(times)
				x.wait(lifetime + time.Second)
				if fault.Hits() == 0 {
					x.Fatal("nothing was refused")
				}
				x.wantAudited("left to the wheel")
				for try := 0; fault.Hits() < times; try++ {
					if try == times {
						x.Fatalf("%d of %d deletes were refused", fault.Hits(), times)
					}
					x.wait(comeBy)
				}
				x.wait(comeBy)
				x.wantAudited("removed")
				if v := x.begins(s); v != redirect {
					x.Fatalf("the next connection of its flow: %s", v)
				}
			})
		})
	}
}

// While a dead connection or template is left to the wheel, packets that would open its
// successor are dropped: they are sent again. A call gets another number.
func TestRefusedDeleteDropsPackets(t *testing.T) {
	refusedCases(t, true, refusedErrors[:1], func(x *interleaved, s refusedStory, refuse func(int) lbtest.Fault) {
		if v := x.begins(s); v != redirect {
			x.Fatalf("the first packet: %s", v)
		}
		fault := refuse(1)
		x.wait(lifetime + time.Second)
		if v := x.begins(s); v != drop && !(s.name == "call" && v == redirect) {
			x.Errorf("%s while something of the former connection is left, want drop", v)
		}
		if n := fault.Hits(); n != 1 {
			x.Errorf("%d deletes were refused", n)
		}
		x.wait(comeBy)
		if v := x.begins(s); v != redirect {
			x.Errorf("the next connection of its flow: %s", v)
		}
		x.wantAudited("open again")
	})
}

// An update that is refused when a connection is opened refuses the packet, and undoes
// what was done before. One more try is a hairpin's with another port.
func TestRefusedUpdates(t *testing.T) {
	refusedCases(t, false, refusedErrors, func(x *interleaved, s refusedStory, refuse func(int) lbtest.Fault) {
		times := 1
		if s.maps[lbtest.LbFaultMapFAULT_hairpins] != 0 {
			times = hairpinTries
		}
		fault := refuse(times)
		if v := x.begins(s); v != drop {
			x.Errorf("the packet: %s, want drop", v)
		}
		if fault.Hits() == 0 {
			x.Error("nothing was refused")
		}
		fault.End()
		x.wantAudited("refused")
		if v := x.begins(s); v != redirect {
			x.Errorf("the packet again: %s", v)
		}
		x.wantAudited("open")
	})
}

// hairpinTries is HAIRPIN_TRIES of bpf/hairpin.h.
const hairpinTries = 64

// What an update that is refused would undo cannot be removed either: that is left to the
// wheel, too.
func TestRefusedUpdateAndDelete(t *testing.T) {
	refusedCases(t, false, refusedErrors[:1], func(x *interleaved, s refusedStory, refuse func(int) lbtest.Fault) {
		fault := refuse(hairpinTries)
		var deletes []lbtest.Fault
		for m := range s.maps {
			deletes = append(deletes, x.Fail(lbtest.Change{Map: m, Delete: true}, unix.EBUSY, 0, 1))
		}
		if v := x.begins(s); v != drop {
			x.Errorf("the packet: %s, want drop", v)
		}
		fault.End()
		x.wantAudited("refused")
		for range s.maps {
			x.wait(comeBy)
		}
		for _, d := range deletes {
			d.End()
		}
		x.wait(comeBy)
		x.wantAudited("undone")
		if v := x.begins(s); v != redirect {
			x.Errorf("the packet again: %s", v)
		}
	})
}

// A packet that ends its flow's earlier connection cannot remove it.
func TestRefusedDeleteByPacket(t *testing.T) {
	for _, errno := range refusedErrors {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			x := newInterleaved(t)
			x.turnWheel() // its clock has the time: an audit compares with it
			x.addService(tcpService(vip, "rr"), 1)
			x.establish(client1, vip)
			x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
			x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_conns4, Delete: true}, errno, 0, 1)
			syn := testenv.TCP(client1, vip, "S")
			if v := x.fromClientOn(cpuB, syn).verdict; v != drop {
				t.Errorf("the SYN: %s, want drop", v)
			}
			x.wantAudited("left to the wheel")
			x.wait(comeBy)
			if v := x.fromClientOn(cpuB, syn).verdict; v != redirect {
				t.Errorf("the SYN again: %s", v)
			}
			x.wantSound("open again")
			x.wantOver()
		})
	}
}

// Likewise, and no timer entry is free: the wheel comes when the connection's own is due.
func TestRefusedDeleteWithoutTimerEntry(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.establish(client1, vip)
	x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	for i := range uint32(freeLists) {
		x.must(x.maps.FreeLists.Put(i, &bpfobj.LbFreeTimerEntries{Fresh: x.maps.TimerEntries4.MaxEntries() * entryPair}))
	}
	x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_conns4, Delete: true}, unix.EBUSY, 0, 1)
	if v := x.fromClientOn(cpuB, testenv.TCP(client1, vip, "S")).verdict; v != drop {
		t.Errorf("the SYN: %s, want drop", v)
	}
	if n := x.entries(x.maps.Conns4); n != 1 {
		t.Fatalf("%d connections, want the one that was left", n)
	}
	x.pass(40 * time.Second)
	if n := x.entries(x.maps.Conns4); n != 0 {
		t.Errorf("%d connections after all timer entries were due", n)
	}
	if active, inactive := x.counts(tcpService(vip, "rr").Key, serverAddr(0)); active != 0 || inactive != 0 {
		t.Errorf("the server counts %d active and %d inactive connections", active, inactive)
	}
}

// A command that ends the connections of a deleted server cannot remove one. The server
// comes back meanwhile, and counts it until it is removed.
func TestRefusedDeleteByCommand(t *testing.T) {
	for _, errno := range refusedErrors {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			x := newInterleaved(t)
			x.turnWheel() // its clock has the time: an audit compares with it
			s := x.persistent()
			x.turn("expire_nodest_conn=1")
			server := x.establish(client1, vip)
			both := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_conns4, Delete: true}, errno, 0, 2)
			x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, server) })
			if n := both.Hits(); n != 2 {
				t.Errorf("%d deletes were refused, want those of the connection and of its template", n)
			}
			x.wantAudited("left to the wheel")
			back := model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}
			x.onCPU(cpuB, func() error { return x.AddServer(s.Key, back) })
			x.wait(comeBy)
			x.wantUncounted("removed")
			x.establish(client1, vip)
			x.wantControlled("open again")
			x.wantOver()
		})
	}
}

// adopted marks all connections and templates as an upgrade's.
func (x *interleaved) adopted() {
	x.Helper()
	all := map[bpfobj.LbFlow4]bpfobj.LbConn4{}
	var key bpfobj.LbFlow4
	var c bpfobj.LbConn4
	it := x.maps.Conns4.Iterate()
	for it.Next(&key, &c) {
		c.Flags |= uint8(bpfobj.LbConnFlagCONN_ADOPTED)
		all[key] = c
	}
	x.must(it.Err())
	for key, c := range all {
		x.must(x.maps.Conns4.Put(key, c))
	}
}

// The wheel comes to a connection that another CPU has killed and cannot remove, before
// that CPU leaves it to the wheel: its timer entry is still there.
func TestRaceWheelBeforeLeft(t *testing.T) {
	for _, adopted := range []bool{false, true} { // a bit that has another meaning later
		t.Run(fmt.Sprintf("adopted %t", adopted), func(t *testing.T) { raceWheelBeforeLeft(t, adopted) })
	}
}

func raceWheelBeforeLeft(t *testing.T, adopted bool) {
	x := newInterleaved(t)
	s := x.persistent()
	x.turn("expire_nodest_conn=1")
	server := x.establish(client1, vip)
	if adopted {
		x.adopted()
	}
	x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_conns4, Delete: true}, unix.EBUSY, 0, 1)
	// It lets its template go between its death and its removal.
	a := x.stop(lbtest.LbHookPointPOINT_CONN_HOLD, func() error { return x.DeleteServer(s.Key, server) })
	x.pass(40 * time.Second) // its timer entry is due
	for i := range uint32(freeLists) {
		x.must(x.maps.FreeLists.Put(i, &bpfobj.LbFreeTimerEntries{Fresh: x.maps.TimerEntries4.MaxEntries() * entryPair}))
	}
	a.finish()
	x.wait(comeBy)
	x.wait(comeBy)
	x.wantUncounted("removed")
}

// A template whose server is gone is not set aside if there is no room for that: its
// connections keep it, and the next one waits.
func TestRefusedSettingAside(t *testing.T) {
	x := newInterleaved(t)
	s := x.persistent()
	server := x.establish(client1, vip)
	x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, server) })
	syn := testenv.TCP("10.10.0.2:4321", vip, "S")
	x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_conns4}, unix.EBUSY, 0, 1)
	if v := x.fromClientOn(cpuB, syn).verdict; v != drop {
		t.Errorf("the SYN: %s, want drop", v)
	}
	x.wantControlled("refused")
	x.wantAudited("refused")
	if v := x.fromClientOn(cpuB, syn).verdict; v != redirect {
		t.Errorf("the SYN again: %s", v)
	}
	x.wantControlled("set aside")
	x.wantAudited("set aside")
	x.wantOver()
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

// A packet in a full table displaces a connection that the kernel does not let it remove: that
// is left to the wheel with its timer entry, and the packet is dropped.
func TestRefusedDisplacement(t *testing.T) {
	for _, errno := range refusedErrors {
		for _, spare := range []bool{true, false} { // there are free timer entries
			t.Run(fmt.Sprintf("%s, timer entries to spare %t", unix.ErrnoName(errno), spare), func(t *testing.T) {
				x := newCrowded(t)
				k := service(model.UDP, vip, "rr").Key
				if !spare {
					for i := range uint32(freeLists) {
						var free bpfobj.LbFreeTimerEntries
						x.must(x.maps.FreeLists.Lookup(i, &free))
						free.First, free.Fresh = 0, x.maps.TimerEntries4.MaxEntries()*entryPair
						x.must(x.maps.FreeLists.Put(i, &free))
					}
				}
				fault := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_conns4, Delete: true}, errno, 0, 1)
				packet := testenv.UDP(client1, vip, "x")
				x.atLast(time.Minute, "a packet displaces", func() bool { // it looks at entries by chance
					if v := x.fromClientOn(cpuB, packet).verdict; v != drop {
						t.Fatalf("the packet: %s, want drop", v)
					}
					return fault.Hits() != 0
				})
				if n := x.displaced(); n != 0 {
					t.Errorf("%d entries were displaced", n)
				}
				if !spare {
					x.pass(40 * time.Second) // the wheel comes by its own timer entry
					if n := x.entries(x.maps.Conns4); n != crowdedRoom-1 {
						t.Errorf("%d connections, want %d", n, crowdedRoom-1)
					}
					x.wantUnproven(k, crowdedRoom-1, "removed")
					return
				}
				x.wantAudited("left to the wheel")
				x.wantUnproven(k, crowdedRoom, "left to the wheel")
				x.wait(comeBy)
				x.wantUnproven(k, crowdedRoom-1, "removed")
				if v := x.fromClientOn(cpuB, packet).verdict; v != redirect {
					t.Errorf("the packet again: %s", v)
				}
				if n := x.displaced(); n != 0 {
					t.Errorf("%d entries were displaced where there was room", n)
				}
				x.wantSound("open")
				x.wantOver()
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
