// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// What the auditor reads of the kernel's maps is read here alone.

// overdueLimit is the longest time by which an entry outlives its end, on a machine that is busy:
// the sweep comes by within a second [ns].
const overdueLimit = uint64(10 * time.Second)

// TickLength is TICK of bpf/clock.h.
const TickLength = time.Duration(1 << 26)

// clockStopped is how far the table's clock may be behind [ticks]: 10 s.
const clockStopped = uint32(10 * time.Second / TickLength)

// auditPass reads all tables once and judges what it can by itself.
func (d *Director) auditPass(ctx context.Context) (*auditPass, error) {
	began := time.Now()
	p := &auditPass{}
	r := auditReader{d: d, pass: p, ctx: ctx}
	steps := []func() error{
		r.settings, r.readClock, r.readIDs, r.readSchedulers,
		r.countsBefore, r.connections, r.countsAfter, r.judgeLines,
		r.calls, r.opened,
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := step(); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
	}
	p.took = time.Since(began)
	return p, nil
}

// auditReader is a pass under way.
type auditReader struct {
	d         *Director
	ctx       context.Context
	pass      *auditPass
	set       bpfobj.LbSettings
	now       uint64
	servers   []bpfobj.LbServer
	buckets   *bucketReader
	others    *bucketReader // reads what an entry leads to, while the first reads blocks
	lines     *linesView
	templates []templateView
	holds     []holdView
}

func (r *auditReader) settings() (err error) {
	if r.set, err = r.d.config(); err != nil {
		return err
	}
	fence() // the generation is known before what it counts is read
	r.now, err = monotonic()
	return err
}

// tableClock is the clock by which entries end, and the sweep's.
func (d *Director) tableClock() (c bpfobj.LbClock, err error) {
	value, err := d.maps.Clocks.LookupBytes(uint32(0))
	if err != nil || len(value) < int(unsafe.Sizeof(c)) {
		return c, fmt.Errorf("read the table's clock: %w", err)
	}
	return *(*bpfobj.LbClock)(unsafe.Pointer(&value[0])), nil
}

func (r *auditReader) readClock() error {
	c, err := r.d.tableClock()
	if err != nil {
		return err
	}
	tick := c.Tick
	r.pass.clock = tick
	// The time was read first, so the tick may be a later one.
	if int32(uint32(r.now/uint64(TickLength))-tick) > int32(clockStopped) {
		r.pass.report(suspect{kind: AuditClockStopped, tick: tick})
	}
	return nil
}

// readIDs reads services and servers.
func (r *auditReader) readIDs() (err error) {
	m, v := &r.d.maps, &r.pass.ids
	if r.servers, err = lookupAll[bpfobj.LbServer](m.Servers, r.set.Servers); err != nil {
		return fmt.Errorf("read servers: %w", err)
	}
	v.top = r.set.Services
	if v.keys, v.services, err = r.services(); err != nil {
		return err
	}
	slots := uint32(0)
	for _, svc := range v.services {
		slots = max(slots, min(svc.First+max(svc.Capacity, svc.Count), m.Order.MaxEntries()))
	}
	if v.order, err = lookupAll[uint32](m.Order, slots); err != nil {
		return fmt.Errorf("read the servers' order: %w", err)
	}
	v.servers = r.servers
	if v.places, v.owners, err = hashAll[bpfobj.LbEndpoint, bpfobj.LbReplyOwner](m.ReplyOwners, hashBatch); err != nil {
		return fmt.Errorf("read the owners of replies: %w", err)
	}
	if r.pass.edited, err = r.editedMeanwhile(); err != nil || r.pass.edited {
		return err
	}
	r.pass.stats.Services = len(v.services)
	for _, svc := range v.services {
		r.pass.stats.Servers += int(svc.Count)
	}
	v.judge(r.pass.report)
	return nil
}

func (r *auditReader) services() ([]bpfobj.LbServiceKey, []bpfobj.LbService, error) {
	keys, values, err := hashAll[bpfobj.LbServiceKey, bpfobj.LbService](r.d.maps.Services, hashBatch)
	if err != nil {
		return nil, nil, fmt.Errorf("read services: %w", err)
	}
	return keys, values, nil
}

// editedMeanwhile reports whether what was read of services and servers may be of
// two states of the table (generation.go).
func (r *auditReader) editedMeanwhile() (bool, error) {
	fence()
	now, err := r.d.config()
	if err != nil {
		return false, err
	}
	return beingEdited(r.set.Generation) || now.Generation != r.set.Generation, nil
}

// readSchedulers reads what schedulers remember. Trees are read between two
// readings of what their nodes depend on.
func (r *auditReader) readSchedulers() (err error) {
	if r.pass.edited {
		return nil
	}
	m := &r.d.maps
	var v schedView
	if v.buckets, err = mapKeys[uint32](m.BucketTables); err != nil {
		return err
	}
	if v.maglevs, err = mapKeys[uint32](m.Maglevs); err != nil {
		return err
	}
	if v.localities, err = mapKeys[bpfobj.LbLocalityKey](m.Localities); err != nil {
		return err
	}
	if v.localitySets, err = mapKeys[bpfobj.LbLocalityKey](m.LocalitySets); err != nil {
		return err
	}
	var states [2][]bpfobj.LbServiceState
	var loads [2][]bpfobj.LbLoad
	var pairs []bpfobj.LbTreePair
	for i := range 2 {
		if states[i], err = lookupAll[bpfobj.LbServiceState](m.ServiceStates, r.set.Services); err != nil {
			return fmt.Errorf("read the schedulers' memory: %w", err)
		}
		if loads[i], err = r.loads(); err != nil {
			return err
		}
		if i == 0 {
			slots := uint32(0)
			for _, s := range states[0] {
				if s.Tree.Tag != 0 {
					slots = max(slots, min(s.Tree.First/2+s.Tree.Leaves/2+1, m.Trees.MaxEntries()))
				}
			}
			if pairs, err = lookupAll[bpfobj.LbTreePair](m.Trees, slots); err != nil {
				return fmt.Errorf("read the trees: %w", err)
			}
		}
	}
	v.states = states[1]
	for _, svc := range r.pass.ids.services {
		if int(svc.Id) >= len(states[0]) {
			continue
		}
		state := states[0][svc.Id]
		t := &state.Tree
		end := t.First/2 + (t.Leaves+1)/2
		if t.Tag == 0 || t.First != svc.First || t.Count != svc.Count || t.Leaves < t.Count || int(end) > len(pairs) ||
			int(t.First+t.Count) > len(r.pass.ids.order) {
			continue // judged as stale, or none
		}
		tree := treeView{service: svc.Id, state: state, pairs: pairs[t.First/2 : end], moved: state != states[1][svc.Id]}
		r.pass.ids.listed(&svc, func(_, id uint32) {
			var l bpfobj.LbLoad
			if int(id) < len(loads[0]) {
				l = loads[0][id]
				tree.moved = tree.moved || l != loads[1][id]
			}
			tree.ids, tree.loads = append(tree.ids, id), append(tree.loads, l)
		})
		v.trees = append(v.trees, tree)
	}
	if edited, err := r.editedMeanwhile(); err != nil || edited {
		r.pass.edited = true
		return err
	}
	v.judge(&r.pass.ids, r.pass.report)
	return nil
}

// mapKeys are the keys of a hash map.
func mapKeys[K any](m *ebpf.Map) (keys []K, err error) {
	var key K
	value := make([]byte, m.ValueSize())
	it := m.Iterate()
	for it.Next(&key, &value) {
		keys = append(keys, key)
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("read the schedulers' memory: %w", err)
	}
	return keys, nil
}

func (r *auditReader) loads() ([]bpfobj.LbLoad, error) {
	loads, err := lookupAll[bpfobj.LbLoad](r.d.maps.Loads, r.set.Servers)
	if err != nil {
		return nil, fmt.Errorf("read the servers' connections: %w", err)
	}
	return loads, nil
}

func (r *auditReader) countsBefore() (err error) {
	c := &r.pass.counts
	c.slack = 2 * int64(runtime.NumCPU())
	c.tally = make([]connTally, r.set.Servers)
	if c.openedBefore, err = r.openedConns(); err != nil {
		return err
	}
	c.before, err = r.loads()
	return err
}

func (r *auditReader) countsAfter() (err error) {
	r.pass.counts.after, err = r.loads()
	return err
}

// opened reads how many connections servers opened, when those are counted that
// were being opened before: behind a grace period.
func (r *auditReader) opened() (err error) {
	if err := gracePeriod(); err != nil {
		return err
	}
	r.pass.counts.openedBy, err = r.openedConns()
	return err
}

func (r *auditReader) openedConns() ([]uint64, error) {
	totals, err := r.d.serverTally().totals(r.set.Servers)
	if err != nil {
		return nil, err
	}
	opened := make([]uint64, r.set.Servers)
	for id, t := range totals {
		opened[id] = t.Conns
	}
	return opened, nil
}

// connections reads all blocks: lines, and their entries.
func (r *auditReader) connections() (err error) {
	if r.buckets, err = r.d.newBucketReader(); err != nil {
		return err
	}
	if r.others, err = r.d.newBucketReader(); err != nil {
		return err
	}
	blocks := r.buckets.blocks
	if r.lines, err = newLinesView(blocks); err != nil {
		return err
	}
	err = blocks.eachBlock(r.ctx, func(b *block) error {
		r.lines.read(b, &r.buckets.secret, r.pass.report)
		return b.entries(r.entry)
	})
	if err != nil {
		return err
	}
	countControlled(r.templates, r.holds)
	judgeControlled(r.templates, r.pass.report)
	return nil
}

// entry judges one, as it was read.
func (r *auditReader) entry(e *entry) error {
	r.connection(e)
	if e.Flags&connDead != 0 {
		return nil
	}
	if e.ofReplies() {
		return r.judgeReplies(AuditRepliesStray, e, e.Server)
	}
	if e.Flow.Template == 0 && e.Flags&connHasReplies != 0 {
		return r.judgeReplies(AuditRepliesMissing, e, e.Replies)
	}
	return nil
}

// judgeReplies looks for the other one of a connection and the entry of its replies.
func (r *auditReader) judgeReplies(kind AuditKind, e *entry, other uint32) error {
	for range 2 { // what was read before may be earlier than the entry
		o, err := r.others.entry(other)
		if err != nil || o != nil && (o.repliesOf(e) || e.repliesOf(o)) {
			return err
		}
		r.others.blocks.forget()
	}
	now, err := r.others.entry(e.at)
	if now == nil || err != nil || now.Flow != e.Flow || incarnation(&now.LbConn) != incarnation(&e.LbConn) ||
		now.Flags&connDead != 0 || kind == AuditRepliesMissing && now.Flags&connHasReplies == 0 {
		return err // it ended meanwhile, or its replies are another's
	}
	r.pass.report(suspect{kind: kind, family: e.Flow.Family, flow: e.Flow, number: e.at, id: e.Server, hash: incarnation(&e.LbConn)})
	return nil
}

// connection judges an entry by itself, and counts it.
func (r *auditReader) connection(c *entry) {
	switch {
	case c.ofReplies():
	case c.Flow.Template != 0:
		r.pass.stats.Templates++
	default:
		r.pass.stats.Connections++
	}
	found := suspect{family: c.Flow.Family, flow: c.Flow, number: c.Index, id: c.Server}
	report := func(kind AuditKind) {
		found.kind = kind
		r.pass.report(found)
	}
	dead, left := c.Flags&connDead != 0, c.Flags&connLeft == connLeft
	if late := int64(r.now - c.Expires); !dead && lapsed(c, r.now) && late > int64(overdueLimit) {
		report(AuditOverdue)
	}
	if dead && !left { // else it is the sweep's, and counted
		found.hash = incarnation(&c.LbConn)
		report(AuditDead)
		return
	}
	if c.ofReplies() || left && c.Server == noServer { // no connection came of it
		return
	}
	if int(c.Server) >= len(r.servers) || never(r.servers[c.Server]) {
		report(AuditConnServer)
		return
	}
	r.pass.counts.add(c)
	switch {
	case left: // the template has let it go, or it is one
	case c.Flow.Template != 0:
		r.templates = append(r.templates, newTemplate(c))
	case c.Template != 0:
		r.holds = append(r.holds, newHold(c))
	}
}

// judgeLines reads all buckets, behind the entries, and judges both.
func (r *auditReader) judgeLines() error {
	r.buckets.blocks.forget()
	return r.lines.judge(r.ctx, r.buckets, r.pass.report)
}

// toFlow4 is flow_to4 of bpf/flow.h.
func toFlow4(f bpfobj.LbFlow) bpfobj.LbFlow4 {
	return bpfobj.LbFlow4{
		Src: f.Src.Word[3], Dst: f.Dst.Word[3], Sport: f.Sport, Dport: f.Dport,
		Protocol: f.Protocol, Template: f.Template, Pad: [2]uint8{f.Pad},
	}
}

// eachOf reads a hash map, many elements at a time.
func eachOf[K, V any](ctx context.Context, m *ebpf.Map, call func(K, V) error) error {
	keys, values := make([]K, hashBatch), make([]V, hashBatch)
	var cursor ebpf.MapBatchCursor
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if err := call(keys[i], values[i]); err != nil {
				return err
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", m, err)
		}
	}
}

var auditSeed = maphash.MakeSeed()

// keyHash identifies a flow or a call within this process: the seed is random.
func keyHash[K bpfobj.LbFlow | bpfobj.LbCall](k *K) uint64 {
	return maphash.Bytes(auditSeed, unsafe.Slice((*byte)(unsafe.Pointer(k)), unsafe.Sizeof(*k)))
}

// identity tells an entry from all others, and from those that had its line or its flow before.
func (e *entry) identity() uint64 {
	return (keyHash(&e.Flow)+uint64(e.at))*inactiveSalt + incarnation(&e.LbConn)
}

// gracePeriod waits until every program that runs now has ended: the kernel does
// before an update of a map of maps returns (maybe_wait_bpf_programs). The map is
// this function's own.
func gracePeriod() error {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	m, err := ebpf.NewMap(inner)
	if err != nil {
		return fmt.Errorf("wait for a grace period: %w", err)
	}
	defer m.Close()
	outer, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner})
	if err != nil {
		return fmt.Errorf("wait for a grace period: %w", err)
	}
	defer outer.Close()
	if err := outer.Put(uint32(0), m); err != nil {
		return fmt.Errorf("wait for a grace period: %w", err)
	}
	return nil
}

// frameOf is a value behind an Ethernet header, for a classifier that reads it
// from there.
func frameOf[T any](v *T) []byte {
	const header = 14
	return append(make([]byte, header), bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))...)
}
