// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
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
	undo    []func()        // of what a repair does not correct
	damaged map[uint32]bool // buckets
}

func newInjector(r *rig) *injector {
	return &injector{rig: r, want: map[AuditKind]int{}, damaged: map[uint32]bool{}}
}

// clientEnd is the address and port of a connection's client.
func clientEnd(e entry) string {
	return netip.AddrPortFrom(fromAddressOf(e.Flow.Src, e.Flow.Family), swapPort(e.Flow.Sport)).String()
}

// victim is a connection that has no fault yet, in a slot of a bucket which is not split soon.
func (x *injector) victim() entry {
	x.Helper()
	for x.used < len(x.flows) {
		e := x.entryOf(x.flows[x.used])
		x.used++
		if n, words := x.bucketOfEntry(&e); slotOf(words, e.Index) != 0 && x.calm(n) {
			return e
		}
	}
	x.Fatal("no connection is left to be damaged")
	return entry{}
}

// calm reports whether a bucket is split or merged only after many others: what is put there stays
// there.
func (x *injector) calm(n uint32) bool {
	x.Helper()
	number := x.buckets()
	under := func(n uint32) uint32 { return 1 << (bits.Len32(n) - 1) } // the power of two
	splits, merges := number, number
	if next := number - under(number); n >= next && n < under(number) {
		splits = n - next
	}
	last := number - 1
	if into := last - under(last); n >= under(last) {
		merges = last - n
	} else if n <= into {
		merges = into - n
	}
	return min(splits, merges) >= number/4
}

// lastSlot is the slot of a bucket that is filled last.
const lastSlot = 13

// roomy is a calm bucket whose last slot and whose chain are empty, and which is not damaged.
func (x *injector) roomy() uint32 {
	x.Helper()
	for n := range x.buckets() {
		if words := x.bucketLine(n); words[lastSlot] == 0 && words[bucketChain] == 0 && !x.damaged[n] && x.calm(n) {
			x.damaged[n] = true
			return n
		}
	}
	x.Fatal("no bucket has room for a fault")
	return 0
}

// nowhere is an index of which there is no line.
const nowhere = indexLines - 1

// wordOf is the slot of a bucket that would lead to an entry.
func (x *injector) wordOf(n uint32, e entry) uint64 {
	x.Helper()
	return uint64(tagOf(e.Hash, x.bucketLine(n)[0]) | e.Index)
}

// unreached takes an entry out of its bucket, which is found.
func (x *injector) unreached(e entry) {
	x.Helper()
	x.unreach(&e)
	x.want[AuditUnreached]++
}

// dead kills a connection as a program would that ended then, and takes it from its server's count. Its
// replies are those of none.
func (x *injector) dead(e entry) {
	x.Helper()
	x.kill(e)
	x.uncounted(e)
	x.want[AuditDead]++
	if r := x.repliesFound(e); r != nil {
		x.unswept(*r)
		x.want[AuditRepliesStray]++
	}
}

// repliesFound is the entry that a connection's replies had when it was read; nil if it has none.
func (x *injector) repliesFound(e entry) *entry {
	x.Helper()
	if e.Flags&connHasReplies == 0 {
		return nil
	}
	r := x.blockOf(e.Replies / indexLines).entry(e.Replies % indexLines)
	if !r.repliesOf(&e) {
		x.Fatalf("%+v is not of the replies of %+v", r, e)
	}
	return &r
}

// forMinute opens connections that last for a minute, not to end between the passes of an audit.
func (x *injector) forMinute(open func()) {
	x.Helper()
	x.still.Lock()
	defer x.still.Unlock()
	set, err := x.config()
	x.must(err)
	x.timeouts(time.Minute, bpfobj.LbConnStateTCP_SYN_RECV)
	open()
	x.timeouts(time.Duration(set.Timeout[bpfobj.LbConnStateTCP_SYN_RECV]), bpfobj.LbConnStateTCP_SYN_RECV)
}

// unswept keeps the sweep from an entry of replies.
func (x *injector) unswept(r entry) {
	x.Helper()
	x.poke(entrySpot(r.at, fieldExpires), asm.DWord, 1<<62|incarnation(&r.LbConn))
}

// ofFullBlock is a connection that has no fault yet, in a block of no CPU's that has connections of the
// injector alone. The block has so few free lines that no CPU takes one as long as there is other room, also
// with one more. Nil if there is none.
func (x *injector) ofFullBlock() (found *entry) {
	x.Helper()
	const spared = 2                // by each CPU: ROOM_AT_HAND of bpf/table/room.h, less one
	own := map[bpfobj.LbFlow]bool{} // those without a fault are true
	for i, flow := range x.flows {
		own[flow] = i >= x.used
	}
	for _, b := range x.allBlocks() {
		n, others := 0, 0
		found = nil
		x.must(b.entries(func(e *entry) error {
			flow := e.Flow
			if e.ofReplies() {
				flow = x.blockOf(e.Server / indexLines).entry(e.Server % indexLines).Flow
			}
			sound, mine := own[flow]
			if mine {
				n++
			} else {
				others++
			}
			if sound && !e.ofReplies() {
				found = ptr(*e)
			}
			return nil
		}))
		if found != nil && b.kind() == bpfobj.LbBlockKindBLOCK_ENTRIES4 && b.free()&unowned != 0 && n >= blockEntries-spared && others == 0 {
			return found
		}
	}
	return nil
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
func (x *injector) uncounted(c entry) {
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

// leakable are the free lines of a block for IPv4 that show no remains of entries of IPv6.
func leakable(b *block) (lines []uint32) {
	for line := uint32(1); b.kind() == bpfobj.LbBlockKindBLOCK_ENTRIES4 && line < blockLines; line++ {
		if b.free()>>line&1 != 0 && !inUse(b.conn(line)) {
			lines = append(lines, b.number*indexLines+line)
		}
	}
	return lines
}

// faults inject one fault each, and say what is found of it.
var faults = []func(*injector){
	func(x *injector) { x.unreached(x.victim()) },
	func(x *injector) { // and its flow was opened again
		e := x.victim()
		x.unreached(e)
		x.forMinute(func() { x.syn(clientEnd(e), quietVIP("wlc")) })
	},
	func(x *injector) { x.dead(x.victim()) },
	func(x *injector) { // dead, and its bucket does not lead to it
		e := x.victim()
		x.dead(e)
		x.unreached(e)
	},
	func(x *injector) { // overdue: the sweep ends what its bucket leads to
		e := x.victim()
		x.unreached(e)
		x.poke(entrySpot(e.Index, fieldExpires), asm.DWord, 2*deadTime|incarnation(&e.LbConn))
		x.want[AuditOverdue]++
	},
	func(x *injector) { // a slot leads nowhere
		x.poke(x.bucketSpot(x.roomy(), lastSlot), asm.Word, 1<<24|nowhere)
		x.want[AuditSlotStray]++
	},
	func(x *injector) { // to another bucket's entry
		e, n := x.victim(), x.roomy()
		for n == x.bucketOf(e.Flow) {
			n = x.roomy()
		}
		x.poke(x.bucketSpot(n, lastSlot), asm.Word, x.wordOf(n, e))
		x.want[AuditSlotStray]++
	},
	func(x *injector) { // two slots lead to one entry
		for {
			e := x.victim()
			if n, words := x.bucketOfEntry(&e); words[lastSlot] == 0 {
				x.poke(x.bucketSpot(n, lastSlot), asm.Word, x.wordOf(n, e))
				x.want[AuditSlotStray]++
				return
			}
		}
	},
	func(x *injector) { // a chain leads nowhere
		x.poke(x.bucketSpot(x.roomy(), bucketChain), asm.Word, nowhere)
		x.want[AuditSlotStray]++
	},
	func(x *injector) { // an entry with another's hash: packets do not find it by its slot
		e := x.victim()
		x.poke(entrySpot(e.Index, fieldHash), asm.Word, uint64(e.Hash^1<<31))
		x.want[AuditSlotStray]++
	},
	func(x *injector) { // one with another's index
		e := x.victim()
		x.poke(entrySpot(e.Index, fieldIndex), asm.Word, uint64(x.victim().Index))
		x.want[AuditSlotStray]++
	},
	func(x *injector) { // a line counts as free, and is not taken while there is other room
		x.still.Lock()
		defer x.still.Unlock()
		e := x.ofFullBlock()
		if e == nil {
			return
		}
		at := slices.Index(x.flows, e.Flow)
		x.flows[x.used], x.flows[at] = x.flows[at], x.flows[x.used]
		x.used++
		x.setFree(e.Index, true)
		x.want[AuditLineFree]++
		x.want[AuditCounts]++ // its server counts it
		if e.Flags&connUnproven != 0 {
			x.want[AuditUnproven]++
		}
	},
	func(x *injector) { // lines leak, which CPUs take last
		x.still.Lock()
		defer x.still.Unlock()
		const leaks = 3
		var lines []uint32
		x.atLast(time.Minute, "a block has free lines", func() bool {
			for _, b := range x.allBlocks() {
				if lines = leakable(b); len(lines) > 4*leaks {
					return true
				}
			}
			return false
		})
		for _, index := range lines[len(lines)-leaks:] {
			x.setFree(index, false)
		}
		x.want[AuditLineLeaked] += leaks
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
		x.forMinute(func() { x.syn(client, quietVIP("")) })
		c := x.entryOf(fromFlow4(x.flow4(client, quietVIP(""))))
		key := templateKey(ptr(fromFlow4(x.flow4(client, quietVIP("")))), &c)
		result, err := x.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_CONTROLLED, Flow: key, Server: c.Server, Controlled: 3})
		x.must(err)
		if result != repairDone || svc.Template == 0 {
			x.Fatalf("the template: %s", result)
		}
		x.want[AuditControlled]++
	},
	func(x *injector) { // replies of another connection
		r := x.repliesFound(x.victim())
		if r == nil {
			x.Fatal("the replies of the quiet services have no entries")
		}
		x.unswept(*r)
		x.poke(entrySpot(r.at, fieldNamed), asm.Word, uint64(r.Fwmark^1))
		x.want[AuditRepliesStray]++
		x.want[AuditRepliesMissing]++
	},
	func(x *injector) { // a connection without replies
		r := x.repliesFound(x.victim())
		x.must(x.removeConn(r))
		x.want[AuditRepliesMissing]++
	},
	func(x *injector) { // packets do not find its replies
		r := x.repliesFound(x.victim())
		if n, words := x.bucketOfEntry(r); slotOf(words, r.at) != 0 && x.calm(n) {
			x.unreached(*r)
		}
	},
	func(x *injector) { // a call and a number without a template
		call := callOf("10.10.8.8:97", "stray")
		x.must(x.maps.CallNumbers.Put(uint32(7), &call))
		call = callOf("10.10.8.8:96", "stray")
		x.must(x.maps.Calls.Put(&call, uint32(9)))
		x.want[AuditCallStray] += 2
	},
	func(x *injector) { // a connection of a server that there is not
		e := x.victim()
		x.uncounted(e)
		x.poke(entrySpot(e.Index, fieldServer), asm.Word, uint64(x.unknown))
		x.want[AuditConnServer]++
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

// grown waits until the table has stopped growing, but for so few buckets that those that are calm
// stay so while it is audited, which takes half a minute on a busy machine.
func (r *rig) grown() {
	r.Helper()
	was, since := r.buckets(), time.Now()
	r.atLast(2*time.Minute, "the number of buckets stays", func() bool {
		if n := r.buckets(); max(n, was)-min(n, was) > was/100 {
			was, since = n, time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
}

// Each kind of fault, put into the tables while packets come, is found; none is
// invented; and none is left by a repair.
func TestAuditFindsInjectedFaults(t *testing.T) {
	r := auditRig(t)
	x := newInjector(r)
	x.unknown = 900
	r.must(r.Batch(func() error {
		for _, scheduler := range auditServices {
			r.addService(tcpService(quietVIP(scheduler), scheduler), 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4)
		}
		r.addService(persistent(tcpService(quietVIP(""), "rr")), 1, 1)
		return nil
	}))
	for i := range 4 * blockEntries * runtime.NumCPU() { // blocks of each CPU are full of them
		client := nthClient(1<<8 + i)
		r.establish(client, quietVIP("wlc"))
		x.flows = append(x.flows, fromFlow4(x.flow4(client, quietVIP("wlc"))))
	}
	stop := r.traffic(len(auditServices) + 2)
	defer func() { stop() }()
	r.wantClean("before")
	r.grown()
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
		if x.want[kind] == 0 && kind != AuditClockStopped && kind != AuditClaimed && kind != AuditServiceID && kind != AuditExtentsOverlap {
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

// A bucket that is claimed for good is found. Until its claim is ended none of its flows can be
// opened, and no connection changes its state.
func TestAuditFindsClaimedBucket(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.establish(client1, vip)
	flow := func(client string) bpfobj.LbFlow { return fromFlow4(flowOf(testenv.TCP(client, vip, "S"))) }
	n := r.bucketOf(flow(client1))
	neighbour := ""
	for i := 0; neighbour == ""; i++ {
		if r.bucketOf(flow(nthClient(i))) == n && nthClient(i) != client1 {
			neighbour = nthClient(i)
		}
	}
	state := func() uint8 { e := r.entryOf(flow(client1)); return e.State }
	was := state()
	r.claim(n)
	if v := r.fromClient(testenv.TCP(neighbour, vip, "S")); v.verdict == redirect || r.conns() != 1 {
		t.Errorf("a new flow: %s, %d connections", v.verdict, r.conns())
	}
	r.fromClient(testenv.TCP(client1, vip, "R"))
	if got := state(); got != was {
		t.Errorf("a reset: state %d, it was %d", got, was)
	}
	report := r.audit(true)
	if len(report.Findings) != 1 || report.Findings[0].Kind != AuditClaimed.String() || !report.Clean() {
		t.Fatalf("%+v", report)
	}
	r.syn(neighbour, vip)
	r.fromClient(testenv.TCP(client1, vip, "R"))
	if got := state(); got == was {
		t.Errorf("a reset after the repair: state %d", got)
	}
}

// An entry that its bucket does not lead to has its replies again when it is repaired. If its flow
// was opened again, it goes, with its server's count.
func TestAuditRepairsUnreached(t *testing.T) {
	r := newRig(t, small)
	other, s := tcpService(nthVIP(1), "rr"), tcpService(nthVIP(2), "rr")
	r.addService(other, 1) // has the replies of the server
	r.addService(s, 1)
	r.establish(client1, nthVIP(2))
	e := r.entryOf(fromFlow4(flowOf(testenv.TCP(client1, nthVIP(2), "A"))))
	if r, err := r.repliesOf(&e); r == nil || err != nil {
		t.Fatalf("%+v has no entry of its replies: %v", e, err)
	}
	reply := testenv.TCP(server0, client1, "A")
	want := func(when string, want verdict) {
		t.Helper()
		if v := r.fromServer(reply); v.verdict != want {
			t.Errorf("%s: a reply: %s, want %s", when, v.verdict, want)
		}
	}
	repaired := func(when string, kinds ...AuditKind) {
		t.Helper()
		report := r.audit(true)
		var got, wanted []string
		for _, f := range report.Findings {
			got = append(got, f.Kind)
		}
		for _, kind := range kinds {
			wanted = append(wanted, kind.String())
		}
		if !slices.Equal(got, wanted) || !report.Clean() {
			t.Errorf("%s: %+v, want %q", when, report, wanted)
		}
	}
	want("before", redirect)
	r.unreach(&e)
	repaired("unreached", AuditUnreached)
	want("repaired", redirect)
	if now := r.entryOf(e.Flow); now.Index != e.Index {
		t.Errorf("the entry is %+v, it was %+v", now, e)
	}
	r.unreach(&e)
	r.syn(client1, nthVIP(2))
	if got := r.conns(); got != 2 {
		t.Fatalf("%d entries, want that of before and the new one", got)
	}
	repaired("opened again", AuditUnreached)
	active, inactive := r.counts(s.Key, serverAddr(0))
	if got := r.conns(); got != 1 || active+inactive != 1 {
		t.Errorf("%d entries; the server has %d active, %d inactive connections", got, active, inactive)
	}
}

// A connection that lacks the entry of its replies gets another one; a hairpin with another port. If the
// replies are another connection's, that is so from then on.
func TestAuditRepairsReplies(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(nthVIP(1), "rr"), 1) // has the replies of the server
	r.addService(tcpService(nthVIP(2), "rr"), 1)
	r.turn("hairpin=1")
	const neighbour = "172.16.0.30:40000"
	r.establish(client1, nthVIP(2))
	r.fromServer(testenv.TCP(neighbour, nthVIP(1), "S"))
	r.wantClean("before")
	for _, e := range r.replies() {
		r.must(r.removeConn(&e))
	}
	if v := r.fromServer(testenv.TCP(server0, client1, "A")).verdict; v == redirect {
		t.Errorf("without an entry: a reply: %s", v)
	}
	report := r.audit(true)
	if len(report.Findings) != 2 || report.Findings[0].Kind != AuditRepliesMissing.String() || !report.Clean() {
		t.Errorf("%+v", report)
	}
	if v := r.fromServer(testenv.TCP(server0, client1, "A")).verdict; v != redirect {
		t.Errorf("a reply: %s", v)
	}
	director, _, err := testenv.Ends(r.fromServer(testenv.TCP(neighbour, nthVIP(1), "A")).frame)
	r.must(err)
	wantForwarded(t, r.fromServer(testenv.TCP(server0, director.String(), "SA")),
		testenv.TCP(nthVIP(1), neighbour, "SA").TTL(63).MACs(serverDevMAC, serverMAC))

	c := r.entryOf(fromFlow4(flowOf(testenv.TCP(client1, nthVIP(2), "A"))))
	r.establish(client1, nthVIP(1)) // the replies are that one's
	if now := r.entryOf(c.Flow); now.Flags&connListed != 0 {
		t.Errorf("%+v is said to have an entry of its replies", now)
	}
	r.wantClean("taken over")
}

// A chain of a bucket that leads to itself is cut, and its entries are entered again.
func TestAuditRepairsChain(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	clients := r.clientsOfOneBucket(bucketSlots+4, vip)
	for _, client := range clients {
		r.syn(client, vip)
	}
	n := r.bucketOf(fromFlow4(flowOf(testenv.TCP(clients[0], vip, "S"))))
	r.wantClean("before")
	head := r.bucketLine(n)[bucketChain]
	var last entry
	for at := head; at != 0; at = last.Next {
		last = r.blockOf(at / indexLines).entry(at % indexLines)
	}
	if head == 0 {
		t.Fatal("nothing is chained: the test shows nothing")
	}
	r.poke(entrySpot(last.Index, fieldNext), asm.Word, uint64(head))
	report := r.audit(true)
	if len(report.Findings) != 1 || report.Findings[0].Kind != AuditSlotStray.String() || !report.Clean() {
		t.Fatalf("%+v", report)
	}
	if got := r.conns(); got != len(clients) {
		t.Errorf("%d connections, there were %d", got, len(clients))
	}
	for _, client := range clients {
		r.entryOf(fromFlow4(flowOf(testenv.TCP(client, vip, "S"))))
	}
	r.wantClean("in the end")
}

// Lines of a block that was IPv6's have parts of addresses where entries of IPv4 have their end. That
// is no fault.
func TestAuditBlockOfOtherFamily(t *testing.T) {
	x := newInterleaved(t)
	six := service(model.TCP, "[fd00:20::1]:80", "rr")
	x.must(x.AddService(six), x.AddServer(six.Key, ipv6.real(0, 8080)))
	x.addService(tcpService(vip, "rr"), 1)
	for i := range 3 * blockEntries {
		x.fromClientOn(cpuB, testenv.TCP(fmt.Sprintf("[fd00:10::%x]:1024", 1+i), "[fd00:20::1]:80", "S"))
	}
	if n := x.conns(model.IPv6); n != 3*blockEntries {
		t.Fatalf("%d connections of IPv6", n)
	}
	x.wantOver()
	for i := range 4 * blockEntries {
		x.fromClientOn(cpuB, testenv.TCP(nthClient(i), vip, "S"))
	}
	remains := 0
	for _, b := range x.allBlocks() {
		for line := uint32(1); b.kind() == bpfobj.LbBlockKindBLOCK_ENTRIES4 && line < blockLines; line++ {
			if b.free()>>line&1 != 0 && inUse(b.conn(line)) {
				remains++
			}
		}
	}
	if remains == 0 {
		t.Fatal("no block was given to the other family, or nothing remains there: the test shows nothing")
	}
	x.wantAudited("with remains of IPv6")
	x.wantSound("after the audit")
	x.wantOver()
}

// A clock that stands still is found, and started.
func TestAuditFindsStoppedClock(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.timeouts(time.Second, bpfobj.LbConnStateTCP_SYN_RECV, bpfobj.LbConnStateTCP_ESTABLISHED)
	r.wantClean("before")
	clock, err := r.tableClock()
	r.must(err)
	value := make([]byte, r.maps.Clocks.ValueSize()) // an update frees the timer
	binary.NativeEndian.PutUint32(value[16:], clock.Tick-2*clockStopped)
	r.must(r.maps.Clocks.Put(uint32(0), value))
	report := r.audit(true)
	if len(report.Findings) != 1 || report.Findings[0].Kind != AuditClockStopped.String() || !report.Clean() {
		t.Fatalf("%+v", report)
	}
	r.syn(client1, vip)
	r.atLast(time.Minute, "the connection ends", func() bool { return r.conns() == 0 })
}
