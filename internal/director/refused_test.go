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
// connection table are none of these, but an entry stays in it, dead, until all that belongs to it
// is removed. Whatever is refused, the flow can be opened again when the sweep or a packet of it has
// come by, nothing is left behind, and counts are right.

// refusedErrors are the errors by which kernels do that.
var refusedErrors = []unix.Errno{unix.EBUSY, unix.EDEADLK, unix.ETIMEDOUT, unix.ENOMEM}

// lifetime is that of each connection and template here, and comeBy the time in which the
// sweep comes to what was left to it.
const (
	lifetime = 10 * time.Second
	comeBy   = 3 * TickLength
)

// refusedStory is a connection with something in other tables.
type refusedStory struct {
	name       string
	packet     testenv.Packet // opens it
	fromServer bool
	// How often changes of a kind of map are made when it is opened and when it ends, at
	// least.
	maps map[lbtest.LbFaultMap]int
	// What is refused is of its template, which ends a minute after its connection.
	lingers bool
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
		// The first service has the replies of its server without an entry; those of others are listed.
		sticky := persistent(service(model.TCP, at(f.vip(3), 80), "rr"))
		sticky.Timeout = lifetime
		x.serve(sticky, f.real(0, 8080))
		reverse := lbtest.LbFaultMapFAULT_reverse4
		if f.number == model.IPv6 {
			reverse = lbtest.LbFaultMapFAULT_reverse6
		}
		type of = map[lbtest.LbFaultMap]int
		client := at(f.client, 1234)
		all = append(all,
			refusedStory{f.name + " with an entry for replies", testenv.TCP(client, at(f.vip(2), 80), "S"), false, of{reverse: 1}, false},
			refusedStory{f.name + " with a template", testenv.TCP(client, at(f.vip(3), 80), "S"), false, of{reverse: 1}, false},
			refusedStory{f.name + " hairpin", testenv.TCP(at(f.server(20), 40000), at(f.vip(1), 80), "S"), true,
				of{reverse: 1, lbtest.LbFaultMapFAULT_hairpins: 1}, false},
		)
	}
	return x, append(all, refusedStory{"call", testenv.UDP(sipClient(1), sipVIP, invite("a@h")), false, map[lbtest.LbFaultMap]int{
		lbtest.LbFaultMapFAULT_calls: 1, lbtest.LbFaultMapFAULT_callNumbers: 1,
	}, true})
}

// begins sends the packet of a story, and says what became of it.
func (x *interleaved) begins(s refusedStory) verdict {
	x.Helper()
	if s.fromServer {
		return x.fromServerOn(cpuB, s.packet).verdict
	}
	return x.fromClientOn(cpuB, s.packet).verdict
}

// ends lets the time of a story's entries be over, and the sweep come by.
func (x *interleaved) ends(s refusedStory) {
	x.Helper()
	x.wait(lifetime + time.Second)
	if s.lingers {
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
	for _, m := range []*ebpf.Map{x.maps.Reverse4, x.maps.Reverse6, x.maps.Hairpins, x.maps.Calls, x.maps.CallNumbers} {
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

// A delete that is refused at the end of a connection is tried again by the sweep, each time it
// comes by, until the kernel allows it.
func TestRefusedDeletes(t *testing.T) {
	for times, errnos := range map[int][]unix.Errno{1: refusedErrors, 3: refusedErrors[:1]} {
		t.Run(fmt.Sprintf("%d times", times), func(t *testing.T) {
			refusedCases(t, true, errnos, func(x *interleaved, s refusedStory, refuse func(int) lbtest.Fault) {
				if v := x.begins(s); v != redirect {
					x.Fatalf("the first packet: %s", v)
				}
				fault := refuse(times)
				x.ends(s)
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
				if v := x.begins(s); v != redirect {
					x.Fatalf("the next connection of its flow: %s", v)
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

// While a delete of a dead connection or template is refused, packets that would open its
// successor are dropped: they are sent again. A call gets another number. When the kernel allows
// it, the packet itself removes the rest.
func TestRefusedDeleteDropsPackets(t *testing.T) {
	refusedCases(t, true, refusedErrors[:1], func(x *interleaved, s refusedStory, refuse func(times int) lbtest.Fault) {
		if v := x.begins(s); v != redirect {
			x.Fatalf("the first packet: %s", v)
		}
		fault := refuse(1 << 20)
		x.ends(s)
		once := fault.Hits()
		if once == 0 {
			x.Fatal("nothing was refused")
		}
		v := x.begins(s)
		if v != drop && !(s.name == "call" && v == redirect) {
			x.Errorf("%s while something of the former connection is left, want drop", v)
		}
		if n := fault.Hits(); v == drop && n == once {
			x.Error("the packet did not try to remove the rest")
		}
		x.wantLeft("left again", 1)
		fault.End()
		if v := x.begins(s); v != redirect {
			x.Errorf("the next connection of its flow: %s", v)
		}
		if s.lingers { // of the former number only the sweep knows
			x.wait(comeBy)
		}
		x.wantLeft("open again", 0)
	})
}

// A connection that was left has let its template go: the packet that removes it does not so again.
func TestRefusedDeleteReleasesOnce(t *testing.T) {
	x := newListed(t)
	x.persistent()
	x.timeouts(lifetime, bpfobj.LbConnStateTCP_SYN_RECV)
	syn := testenv.TCP(client1, vip, "S")
	x.fromClientOn(cpuB, syn)
	x.advance(lifetime / 2)
	for _, another := range []string{"10.10.0.2:4321", "10.10.0.2:4322"} {
		x.fromClientOn(cpuB, testenv.TCP(another, vip, "S"))
	}
	f := x.followHere(FollowRule{})
	fault := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_reverse4, Delete: true}, unix.EBUSY, 0, 1)
	x.wait(lifetime/2 + time.Second)
	if fault.Hits() != 1 {
		t.Fatalf("%d deletes were refused", fault.Hits())
	}
	x.wantLeft("left to the sweep", 1)
	x.wantFollowed(f, "1234 close SYN_RECV")
	if v := x.fromClientOn(cpuB, syn).verdict; v != redirect {
		t.Errorf("the SYN again: %s", v)
	}
	x.wantFollowed(f, "1234 open SYN_RECV")
	x.wantLeft("open again", 0)
	x.wantControlled("open again")
	x.wantSound("open again")
	x.wantOver()
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
// sweep, too.
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
		x.wantLeft("refused", -1)
		for range s.maps {
			x.wait(comeBy)
		}
		for _, d := range deletes {
			d.End()
		}
		x.wait(comeBy)
		x.wantLeft("undone", 0)
		if v := x.begins(s); v != redirect {
			x.Errorf("the packet again: %s", v)
		}
	})
}

// newListed is a rig with a service whose server's replies are listed, as another service has them.
func newListed(t *testing.T) *interleaved {
	t.Helper()
	x := newInterleaved(t)
	x.sweepTable() // the table's clock has the time: an audit compares with it
	x.addService(tcpService(otherVIP, "rr"), 1, 1)
	return x
}

// A packet that ends its flow's earlier connection cannot remove it. If it is refused once, it
// tries again, and opens its own connection. Else the sweep removes the earlier one.
func TestRefusedDeleteByPacket(t *testing.T) {
	for _, errno := range refusedErrors {
		for _, times := range []int{1, 1 << 20} {
			t.Run(fmt.Sprintf("%s, %d times", unix.ErrnoName(errno), times), func(t *testing.T) {
				x := newListed(t)
				x.addService(tcpService(vip, "rr"), 1)
				x.establish(client1, vip)
				x.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
				fault := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_reverse4, Delete: true}, errno, 0, times)
				syn := testenv.TCP(client1, vip, "S")
				v := x.fromClientOn(cpuB, syn).verdict
				if fault.Hits() == 0 {
					t.Error("nothing was refused")
				}
				if times == 1 {
					if v != redirect {
						t.Errorf("the SYN: %s, though its second attempt was allowed", v)
					}
				} else {
					if v != drop {
						t.Errorf("the SYN: %s, want drop", v)
					}
					x.wantLeft("left to the sweep", 1)
					fault.End()
					x.wait(comeBy)
					if n := x.conns(); n != 0 {
						t.Errorf("%d connections after the sweep", n)
					}
					if v := x.fromClientOn(cpuB, syn).verdict; v != redirect {
						t.Errorf("the SYN again: %s", v)
					}
				}
				x.wantLeft("open again", 0)
				x.wantSound("open again")
				x.wantOver()
			})
		}
	}
}

// A command that ends the connections of a deleted server cannot remove one. The server
// comes back meanwhile, and counts it until it is removed.
func TestRefusedDeleteByCommand(t *testing.T) {
	for _, errno := range refusedErrors {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			x := newListed(t)
			s := x.persistent()
			x.turn("expire_nodest_conn=1")
			server := x.establish(client1, vip)
			fault := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_reverse4, Delete: true}, errno, 0, 1)
			x.onCPU(cpuB, func() error { return x.DeleteServer(s.Key, server) })
			if n := fault.Hits(); n != 1 {
				t.Errorf("%d deletes were refused, want that of the connection's replies", n)
			}
			x.wantLeft("left to the sweep", 1)
			if n := x.conns(); n != 1 {
				t.Errorf("%d entries, want the connection: its template controls nothing any more", n)
			}
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
	for _, e := range x.allEntries() {
		x.changeConn(e.Index, func(c *bpfobj.LbConn) { c.Flags |= uint8(bpfobj.LbConnFlagCONN_ADOPTED) })
	}
}

// The sweep comes to a connection that another CPU has killed and not yet removed, before that CPU
// is refused to and leaves it to the sweep: that is not the sweep's before.
func TestRaceSweepBeforeLeft(t *testing.T) {
	for _, adopted := range []bool{false, true} { // a bit that has another meaning later
		t.Run(fmt.Sprintf("adopted %t", adopted), func(t *testing.T) { raceSweepBeforeLeft(t, adopted) })
	}
}

func raceSweepBeforeLeft(t *testing.T, adopted bool) {
	x := newListed(t)
	s := x.persistent()
	x.turn("expire_nodest_conn=1")
	server := x.establish(client1, vip)
	if adopted {
		x.adopted()
	}
	fault := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_reverse4, Delete: true}, unix.EBUSY, 0, 1)
	// It lets its template go between its death and its removal.
	a := x.stop(lbtest.LbHookPointPOINT_CONN_HOLD, func() error { return x.DeleteServer(s.Key, server) })
	x.pass(40 * time.Second)
	if n := x.conns(); n != 2 || fault.Hits() != 0 {
		t.Errorf("%d entries, %d deletes were refused: the sweep removed what another CPU is about to", n, fault.Hits())
	}
	a.finish()
	if fault.Hits() != 1 {
		t.Errorf("%d deletes were refused", fault.Hits())
	}
	x.wait(comeBy)
	x.wantUncounted("removed")
}

// A template whose server is gone is not set aside if there is no room for that: its
// connections keep it, and the next one waits.
func TestRefusedSettingAside(t *testing.T) {
	x := newInterleavedSized(t, crowdedSizes)
	s := x.persistent()
	x.addService(tcpService(otherVIP, "rr"), 1)
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
		x.fromServerOn(cpuB, testenv.TCP(server0, nthClient(1000+i), "RA"))
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

// A packet in a full table displaces a connection that the kernel does not let it remove: that
// is left to the sweep, and the packet is dropped.
func TestRefusedDisplacement(t *testing.T) {
	const displaceable = 40
	for _, errno := range refusedErrors {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			x := newInterleavedSized(t, crowdedSizes)
			k := service(model.UDP, vip, "rr").Key
			x.addService(service(model.UDP, otherVIP, "rr"), 1) // has the server's replies: others' are listed
			x.addService(service(model.UDP, vip, "rr"), 1)
			x.addService(tcpService(calmVIP, "rr"), 1)
			x.crowd(func(i int) testenv.Packet {
				if i < displaceable {
					return testenv.UDP(crowdedClient(i), vip, "x")
				}
				return testenv.TCP(nthClient(1000+i), calmVIP, "S")
			})
			fault := x.Fail(lbtest.Change{Map: lbtest.LbFaultMapFAULT_reverse4, Delete: true}, errno, 0, 1)
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
			x.wantLeft("left to the sweep", 1)
			x.wantUnproven(k, displaceable, "left to the sweep")
			x.wait(comeBy)
			x.wantUnproven(k, displaceable-1, "removed")
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
