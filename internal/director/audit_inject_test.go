// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// quietService is the first of the services that the injected traffic leaves alone,
// of the same schedulers.
const quietService = 40

// injector puts faults into a director's tables.
type injector struct {
	*rig
	flows []bpfobj.LbFlow // of established connections to the quiet wlc service
	want  map[AuditKind]int
	used  int
	// unknown is a server's id that no server ever had; round distinguishes clients of
	// several injections.
	unknown uint32
	round   int
	undo    []func() // of what a repair does not correct
}

// victim is a connection that has no fault yet, and its value.
func (x *injector) victim() (bpfobj.LbFlow, bpfobj.LbConn6) {
	x.Helper()
	if x.used == len(x.flows) {
		x.Fatal("no connection is left to be damaged")
	}
	flow := x.flows[x.used]
	x.used++
	return flow, x.conn(flow)
}

// conn is a connection's value.
func (x *injector) conn(flow bpfobj.LbFlow) bpfobj.LbConn6 {
	x.Helper()
	c, err := x.connOf(flow)
	x.must(err)
	if c == nil {
		x.Fatalf("no connection %s", flowText(flow))
	}
	return *c
}

func (x *injector) put(flow bpfobj.LbFlow, c bpfobj.LbConn6) {
	x.Helper()
	four := bpfobj.LbConn4{
		Flow: toFlow4(flow), Expires: c.Expires, Due: c.Due, Number: c.Number, Server: c.Server, Port: c.Port,
		State: c.State, Flags: c.Flags, Template: c.Template, Forward: c.Forward, InPackets: c.InPackets,
		Fwmark: c.Fwmark, Netmask: c.Netmask,
	}
	x.must(x.maps.Conns4.Put(four.Flow, &four))
}

// timerEntry is one of IPv4.
type timerEntry struct {
	Next uint32
	Flow bpfobj.LbFlow4
}

// entry is a timer entry; setEntry writes it.
func (x *injector) entry(number uint32) timerEntry {
	x.Helper()
	var pair bpfobj.LbTimerPair4
	x.must(x.maps.TimerEntries4.Lookup((number-1)/entryPair, &pair))
	half := (number - 1) % entryPair
	return timerEntry{pair.Next[half], pair.Flow[half]}
}

// next is the number behind an entry; 0 also if another fault has put a number there of
// which there is no entry.
func (x *injector) next(number uint32) uint32 {
	x.Helper()
	var pair bpfobj.LbTimerPair4
	err := x.maps.TimerEntries4.Lookup((number-1)/entryPair, &pair)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0
	}
	x.must(err)
	return pair.Next[(number-1)%entryPair]
}

func (x *injector) setEntry(number uint32, e timerEntry) {
	x.Helper()
	var pair bpfobj.LbTimerPair4
	x.must(x.maps.TimerEntries4.Lookup((number-1)/entryPair, &pair))
	half := (number - 1) % entryPair
	pair.Next[half], pair.Flow[half] = e.Next, e.Flow
	x.must(x.maps.TimerEntries4.Put((number-1)/entryPair, &pair))
}

// last is a connection whose timer entry is the last in its slot's list, which no
// other fault concerns.
func (x *injector) last() bpfobj.LbConn6 {
	x.Helper()
	for {
		if _, c := x.victim(); x.entry(c.Number).Next == 0 {
			return c
		}
	}
}

// before is the timer entry that leads to another one in a slot's list, 0 if none does.
func (x *injector) before(number uint32) (before uint32) {
	x.Helper()
	for slot := range x.maps.Wheel.MaxEntries() {
		var s bpfobj.LbWheelSlot
		x.must(x.maps.Wheel.Lookup(slot, &s))
		// Another fault may have made a circle of the list.
		for at, n := s.First4, uint32(0); at != 0 && n < x.maps.TimerEntries4.MaxEntries(); n++ {
			next := x.next(at)
			if next == number {
				before = at
			}
			at = next
		}
	}
	return before
}

// counts changes what a server counts as packets do.
func (x *injector) counts(server uint32, active, inactive, persistent int32) {
	x.Helper()
	result, err := x.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_COUNTS, Server: server,
		Active: active, Inactive: inactive, Persistent: persistent})
	x.must(err)
	if result != repairDone {
		x.Fatalf("server %d: %s", server, result)
	}
}

// bare changes what a server counts as unproven.
func (x *injector) bare(server uint32, n int32) {
	x.Helper()
	result, err := x.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_COUNTS, Server: server, Unproven: n})
	x.must(err)
	if result != repairDone {
		x.Fatalf("server %d: %s", server, result)
	}
}

// uncounted takes a connection from what its server counts.
func (x *injector) uncounted(c bpfobj.LbConn6) {
	x.Helper()
	x.counts(c.Server, -1, 0, 0)
	if c.Flags&connUnproven != 0 {
		x.bare(c.Server, -1)
	}
}

// service is the value and key of a service.
func (x *injector) service(vip string) (bpfobj.LbServiceKey, bpfobj.LbService) {
	x.Helper()
	key := toKey(model.AddrKey(model.TCP, netip.MustParseAddrPort(vip)))
	var svc bpfobj.LbService
	x.must(x.maps.Services.Lookup(key, &svc))
	return key, svc
}

// quiet is the quiet service of a scheduler.
func (x *injector) quiet(scheduler string) (bpfobj.LbServiceKey, bpfobj.LbService) {
	x.Helper()
	return x.service(quietVIP(scheduler))
}

func quietVIP(scheduler string) string {
	for i, s := range auditServices {
		if s == scheduler {
			return nthVIP(quietService + i)
		}
	}
	return nthVIP(quietService + len(auditServices)) // the persistent one
}

// idOf is the id of a service's n-th server.
func (x *injector) idOf(svc bpfobj.LbService, n uint32) (id uint32) {
	x.Helper()
	x.must(x.maps.Order.Lookup(svc.First+n, &id))
	return id
}

func (x *injector) server(id uint32) (s bpfobj.LbServer) {
	x.Helper()
	x.must(x.maps.Servers.Lookup(id, &s))
	return s
}

func (x *injector) state(id uint32) (s bpfobj.LbServiceState) {
	x.Helper()
	x.must(x.maps.ServiceStates.Lookup(id, &s))
	return s
}

// freeList reads a list of free timer entries that no CPU of this machine takes from
// while its own has any.
func (x *injector) freeList(at uint32) (l bpfobj.LbFreeTimerEntries) {
	x.Helper()
	x.must(x.maps.FreeLists.Lookup(at, &l))
	if runtime.NumCPU() > int(at) {
		x.Skipf("this machine has a CPU %d, which uses the list of free timer entries that is to be damaged", at)
	}
	return l
}

// freeEntry is the n-th entry of a free list: timer_entry_number of bpf/wheel.h.
func freeEntry(list, n uint32) uint32 {
	return 1 + (n/freeBlock*freeLists+list)*freeBlock + n%freeBlock
}

// faults inject one fault each, and say what is found of it.
var faults = []func(*injector){
	func(x *injector) { // names no timer entry
		flow, c := x.victim()
		c.Number = 0
		x.put(flow, c)
		x.want[AuditNoTimer]++
	},
	func(x *injector) { // names another's
		flow, c := x.victim()
		_, other := x.victim()
		c.Number = other.Number
		x.put(flow, c)
		x.want[AuditNoTimer]++
	},
	func(x *injector) { // it is missing from its slot's list, with the entries behind it
		before := uint32(0)
		for before == 0 { // one that is not alone in its slot
			before = x.before(x.last().Number)
		}
		e := x.entry(before)
		e.Next = 0
		x.setEntry(before, e)
		x.want[AuditNoTimer]++
	},
	func(x *injector) { // dead
		flow, c := x.victim()
		c.Flags |= connDead
		x.put(flow, c)
		x.uncounted(c)
		x.want[AuditDead]++
	},
	func(x *injector) { // dead, left to the wheel, and not on it
		flow, c := x.victim()
		c.Flags |= connLeft
		c.Number = 0
		x.put(flow, c)
		x.want[AuditNoTimer]++
	},
	func(x *injector) { // overdue
		flow, c := x.victim()
		c.Expires = 1
		x.put(flow, c)
		x.want[AuditOverdue]++
	},
	func(x *injector) { // in two slots
		one, two := x.last(), x.last()
		e := x.entry(one.Number)
		e.Next = two.Number
		x.setEntry(one.Number, e)
		x.want[AuditEntryTwice]++
	},
	func(x *injector) { // in a slot and free
		c := x.last()
		l := x.freeList(9)
		if l.First != 0 {
			x.Fatal("there are free timer entries in the list")
		}
		l.First = c.Number
		x.must(x.maps.FreeLists.Put(uint32(9), &l))
		x.want[AuditEntryListedFree]++
	},
	func(x *injector) { // leaked
		l := x.freeList(10)
		l.Fresh += 3
		x.must(x.maps.FreeLists.Put(uint32(10), &l))
		x.want[AuditEntryLeaked] += 3
	},
	func(x *injector) { // lost
		l := x.freeList(11)
		before := l.Fresh
		l.Fresh += 20
		for n := before; n < l.Fresh; n++ {
			e := timerEntry{Flow: bpfobj.LbFlow4{Template: entryFree}}
			if n > before+2 {
				e.Next = l.First
				l.First = freeEntry(11, n)
			}
			x.setEntry(freeEntry(11, n), e)
		}
		x.must(x.maps.FreeLists.Put(uint32(11), &l))
		x.want[AuditEntryLost] += 3
	},
	func(x *injector) { // a link to nowhere
		c := x.last()
		e := x.entry(c.Number)
		e.Next = 0x7fffffff
		x.setEntry(c.Number, e)
		x.want[AuditLinkBroken]++
	},
	func(x *injector) { // counts of a server without traffic
		_, svc := x.quiet("lc")
		x.counts(x.idOf(svc, 0), 1, 0, 0)
		x.counts(x.idOf(svc, 1), 2, -2, 0)
		x.counts(x.idOf(svc, 2), 0, -1, 1)
		x.want[AuditCounts] += 3
	},
	func(x *injector) { // unproven entries
		_, svc := x.quiet("sh")
		x.bare(x.idOf(svc, 0), 5)
		x.want[AuditUnproven]++
	},
	func(x *injector) { // and of one with
		_, svc := x.service(nthVIP(0))
		id := x.idOf(svc, 0)
		x.counts(id, 50000, 0, 0)
		x.undo = append(x.undo, func() { x.counts(id, -50000, 0, 0) })
		x.want[AuditCountsMoving]++
	},
	func(x *injector) { // what a template controls
		_, svc := x.quiet("")
		client := fmt.Sprintf("10.10.9.%d:%d", 1+x.round%250, 1234+x.round/250)
		x.syn(client, quietVIP(""))
		c := x.conn(fromFlow4(x.flow4(client, quietVIP(""))))
		key := templateKey(ptr(fromFlow4(x.flow4(client, quietVIP("")))), &c)
		result, err := x.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_CONTROLLED, Flow: key, Server: c.Server, Controlled: 3})
		x.must(err)
		if result != repairDone || svc.Template == 0 {
			x.Fatalf("the template: %s", result)
		}
		x.want[AuditControlled]++
	},
	func(x *injector) { // entries without a connection
		key := x.flow4("172.16.0.9:8080", "10.10.8.8:99")
		x.must(x.maps.Reverse4.Put(key, x.flow4("10.10.8.8:99", nthVIP(quietService))))
		client, reverse := fromFlow4(x.flow4("10.10.8.8:98", nthVIP(quietService))), fromFlow4(x.flow4("172.16.0.9:8080", "172.16.0.1:2000"))
		x.must(x.maps.Hairpins.Put(client, reverse))
		x.must(x.maps.Reverse4.Put(toFlow4(reverse), toFlow4(client)))
		x.want[AuditReverseStray] += 2
		x.want[AuditHairpinStray]++
	},
	func(x *injector) { // a call and a number without a template
		call := callOf("10.10.8.8:97", "stray")
		x.must(x.maps.CallNumbers.Put(uint32(7), &call))
		call = callOf("10.10.8.8:96", "stray")
		x.must(x.maps.Calls.Put(&call, uint32(9)))
		x.want[AuditCallStray] += 2
	},
	func(x *injector) { // a connection of a server that there is not
		flow, c := x.victim()
		x.uncounted(c)
		c.Server = x.unknown
		x.put(flow, c)
		x.want[AuditConnServer]++
		x.want[AuditReverseStray]++ // where its replies led
	},
	func(x *injector) { // a deleted server that is available
		_, svc := x.quiet("sed")
		id := x.idOf(svc, 0)
		s := x.server(id)
		x.must(x.DeleteServer(fromKey(s.Owner), netip.AddrPortFrom(fromAddress(s.Addr), swapPort(s.Port))))
		gone := x.server(id)
		gone.Flags |= bpfobj.LbServerFlagSERVER_AVAILABLE
		x.must(x.maps.Servers.Put(id, &gone))
		x.want[AuditServerUnlisted]++
	},
	func(x *injector) { // another's server in a list, whose own is in none then
		_, svc := x.quiet("dh")
		_, other := x.quiet("twos")
		x.must(x.maps.Order.Put(svc.First, x.idOf(other, 0)))
		x.want[AuditOrderServer]++
		x.want[AuditServerUnlisted]++
	},
	func(x *injector) { // a service's sum
		key, svc := x.quiet("nq")
		svc.Check ^= 1
		x.must(x.maps.Services.Put(key, &svc))
		x.want[AuditServiceCheck]++
	},
	func(x *injector) { // an owner of replies
		places, owners, err := hashAll[bpfobj.LbEndpoint, bpfobj.LbReplyOwner](x.maps.ReplyOwners, hashBatch)
		x.must(err)
		i := slices.IndexFunc(owners, func(o bpfobj.LbReplyOwner) bool {
			return x.server(o.Server).Flags&bpfobj.LbServerFlagSERVER_AVAILABLE != 0
		})
		owners[i].Server += 1
		x.must(x.maps.ReplyOwners.Put(places[i], &owners[i]))
		x.want[AuditReplyOwner]++
		x.want[AuditReplyOwnerMissing]++
	},
	func(x *injector) { // an effective weight
		_, svc := x.quiet("sh")
		id := x.idOf(svc, 1)
		s := x.server(id)
		s.Weight += 3
		x.must(x.maps.Servers.Put(id, &s))
		x.want[AuditServerWeight]++
	},
	func(x *injector) { // tables of schedulers that there are not
		_, svc := x.quiet("rr")
		x.must(x.maps.BucketTables.Put(svc.Id, &bpfobj.LbBuckets{}), x.maps.Maglevs.Put(svc.Id, &bpfobj.LbMaglev{}))
		x.must(x.maps.Localities.Put(bpfobj.LbLocalityKey{Service: svc.Id}, &bpfobj.LbLocality{}))
		x.must(x.maps.LocalitySets.Put(bpfobj.LbLocalityKey{Service: 255}, &bpfobj.LbLocalitySet{}))
		x.want[AuditBucketsStale]++
		x.want[AuditMaglevStale]++
		x.want[AuditLocalityStale] += 2
	},
	func(x *injector) { // another incarnation's memory
		_, svc := x.quiet("wrr")
		state := x.state(svc.Id)
		state.Incarnation++
		x.must(x.maps.ServiceStates.Put(svc.Id, &state))
		x.want[AuditStateStale]++
	},
	func(x *injector) { // trees: of another list, and of a service that is gone
		_, svc := x.quiet("fo")
		state := x.state(svc.Id)
		state.Tree.Count--
		x.must(x.maps.ServiceStates.Put(svc.Id, &state))
		_, gone := x.quiet("ovf")
		x.must(x.DeleteService(model.AddrKey(model.TCP, netip.MustParseAddrPort(quietVIP("ovf")))))
		left := x.state(gone.Id)
		if left.Tree.Rule != bpfobj.LbSchedulerSCHED_OVF || left.Tree.Tag != 0 {
			x.Fatalf("of the deleted service: %+v", left.Tree)
		}
		left.Tree.Tag = 1
		x.must(x.maps.ServiceStates.Put(gone.Id, &left))
		x.want[AuditTreeStale] += 2
	},
	func(x *injector) { // a node
		_, svc := x.quiet("lblc")
		tree := x.state(svc.Id).Tree
		at := tree.First / 2
		var pair bpfobj.LbTreePair
		x.must(x.maps.Trees.Lookup(at, &pair))
		pair.Node[1] ^= 1
		x.must(x.maps.Trees.Put(at, &pair))
		x.want[AuditTreeNode]++
	},
}

func ptr[T any](v T) *T { return &v }

// flow4 is the flow of TCP packets.
func (x *injector) flow4(src, dst string) bpfobj.LbFlow4 {
	end := func(s string) (uint32, uint16) {
		a := netip.MustParseAddrPort(s)
		return toAddress(a.Addr()).Word[3], swapPort(a.Port())
	}
	f := bpfobj.LbFlow4{Protocol: uint8(model.TCP)}
	f.Src, f.Sport = end(src)
	f.Dst, f.Dport = end(dst)
	return f
}

// Each kind of fault, put into the tables while packets come, is found; none is
// invented; and none is left by a repair.
func TestAuditFindsInjectedFaults(t *testing.T) {
	r := auditRig(t)
	x := &injector{rig: r, want: map[AuditKind]int{}, unknown: 900}
	r.must(r.Batch(func() error {
		for _, scheduler := range auditServices {
			r.addService(tcpService(quietVIP(scheduler), scheduler), 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4)
		}
		r.addService(persistent(tcpService(quietVIP(""), "rr")), 1, 1)
		return nil
	}))
	for i := range 48 {
		client := nthClient(1<<8 + i)
		r.establish(client, quietVIP("wlc"))
		if i%3 == 2 {
			time.Sleep(70 * time.Millisecond) // some share a slot, many do not
		}
		x.flows = append(x.flows, fromFlow4(x.flow4(client, quietVIP("wlc"))))
	}
	stop := r.traffic(len(auditServices) + 2)
	defer func() { stop() }()
	r.wantClean("before")
	for _, inject := range faults {
		inject(x)
	}
	// The interval is long enough for new connections to every server.
	report, err := r.Audit(t.Context(), AuditOptions{Interval: time.Second, Repair: true})
	r.must(err)
	got := map[string]int{}
	for _, f := range report.Findings {
		got[f.Kind]++
		t.Logf("%+v", f)
	}
	for _, kind := range AuditKinds() {
		if got[kind.String()] != x.want[kind] {
			t.Errorf("%s: found %d, want %d", kind, got[kind.String()], x.want[kind])
		}
		if x.want[kind] == 0 && kind != AuditClockStopped && kind != AuditServiceID && kind != AuditExtentsOverlap {
			t.Errorf("%s: never injected", kind)
		}
	}
	for _, f := range report.Remaining {
		if f.Kind != AuditCountsMoving.String() {
			t.Errorf("after the repair (%d rounds): %+v", report.Rounds, f)
		}
	}
	stop()
	stop = func() {}
	r.atLast(time.Minute, "what was in motion is repaired", func() bool {
		report = r.audit(true)
		return report.Clean()
	})
	r.wantClean("in the end")
}

// A clock that stands still is found, and started.
func TestAuditFindsStoppedClock(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.timeouts(time.Second, bpfobj.LbConnStateTCP_SYN_RECV, bpfobj.LbConnStateTCP_ESTABLISHED)
	r.wantClean("before")
	tick, err := r.wheelClockTick()
	r.must(err)
	value := make([]byte, r.maps.Clocks.ValueSize()) // an update frees the timer
	binary.NativeEndian.PutUint32(value[16:], tick-2*clockStopped)
	r.must(r.maps.Clocks.Put(uint32(0), value))
	report := r.audit(true)
	if len(report.Findings) != 1 || report.Findings[0].Kind != AuditClockStopped.String() || !report.Clean() {
		t.Fatalf("%+v", report)
	}
	r.syn(client1, vip)
	r.atLast(time.Minute, "the connection ends", func() bool { return r.entries(r.maps.Conns4) == 0 })
}
