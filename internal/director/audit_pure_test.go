// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// suspected runs a judgement and returns the kinds that it reports, in order.
func suspected(judge func(report func(suspect))) (kinds []AuditKind) {
	judge(func(s suspect) { kinds = append(kinds, s.kind) })
	return kinds
}

func wantKinds(t *testing.T, what string, got []AuditKind, want ...AuditKind) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// aWheel is one of entries 1 to 4, of which 1 and 2 are in slot 500, 3 in slot 600
// and 4 is free; connections name 1 to 3.
func aWheel() *wheelView {
	w := newWheelView(uint8(model.IPv4), 16)
	w.before, w.after = 100, 110
	w.firsts, w.fresh = make([]uint32, wheelSlots), make([]uint32, freeLists)
	w.fresh[0] = 4
	w.freeFirst, w.freeQuiet = make([]uint32, freeLists), make([]bool, freeLists)
	w.freeQuiet[0], w.freeFirst[0] = true, 4
	w.firsts[500], w.firsts[600] = 1, 3
	for n := uint32(1); n <= 4; n++ {
		w.first(n, 10*n, n == 4)
		w.second(n, map[uint32]uint32{1: 2}[n], 10*n, n == 4)
		if n < 4 {
			w.name(n, 10*n, map[bool]uint32{true: 600, false: 500}[n == 3])
		}
	}
	return w
}

func TestAuditWheel(t *testing.T) {
	for what, c := range map[string]struct {
		damage func(*wheelView)
		want   []AuditKind
	}{
		"sound":                      {func(*wheelView) {}, nil},
		"out of its slot":            {func(w *wheelView) { w.firsts[600] = 0 }, []AuditKind{AuditNoTimer}},
		"its tick came meanwhile":    {func(w *wheelView) { w.firsts[600] = 0; w.nameTick[3] = 105 }, nil},
		"of another flow":            {func(w *wheelView) { w.nameFlow[3] = 31 }, []AuditKind{AuditNoTimer}},
		"in two slots":               {func(w *wheelView) { w.firsts[700] = 2 }, []AuditKind{AuditEntryTwice}},
		"a circle":                   {func(w *wheelView) { w.next[2] = 1 }, []AuditKind{AuditEntryTwice}},
		"a slot that was taken":      {func(w *wheelView) { w.firsts[105] = 2 }, nil},
		"marked as free in a slot":   {func(w *wheelView) { w.bits[2] |= freeSecond }, []AuditKind{AuditEntryListedFree}},
		"the free list leads there":  {func(w *wheelView) { w.next[4] = 2 }, []AuditKind{AuditEntryListedFree}},
		"of no connection":           {func(w *wheelView) { w.firsts[600] = 0; w.nameFlow[3] = 0 }, []AuditKind{AuditEntryLeaked}},
		"booked just now":            {func(w *wheelView) { w.firsts[600] = 0; w.nameFlow[3] = 0; w.bits[3] &^= bookedFirst }, nil},
		"lost":                       {func(w *wheelView) { w.freeFirst[0] = 0 }, []AuditKind{AuditEntryLost}},
		"lost from a list in motion": {func(w *wheelView) { w.freeFirst[0] = 0; w.freeQuiet[0] = false }, nil},
		"a link to nowhere":          {func(w *wheelView) { w.next[2] = 99 }, []AuditKind{AuditLinkBroken}},
		"free links to nowhere":      {func(w *wheelView) { w.next[4] = 99 }, []AuditKind{AuditLinkBroken}},
	} {
		w := aWheel()
		c.damage(w)
		wantKinds(t, what, suspected(w.judge), c.want...)
	}
}

// someCounts are a server's, at rest.
func someCounts() *countsView {
	l := []bpfobj.LbLoad{{Active: 3, Inactive: 2, Persistent: 1, Overloaded: loadOverloaded + 2*loadUnproven}}
	return &countsView{before: l, after: slices.Clone(l), openedBefore: []uint64{5}, openedBy: []uint64{5},
		tally: []connTally{{active: 3, inactive: 2, templates: 1, conns: 77, templ: 7, unproven: 2, bare: 9}}}
}

func TestAuditCounts(t *testing.T) {
	judge := func(change func(one, two *countsView)) []AuditKind {
		one, two := someCounts(), someCounts()
		change(one, two)
		return suspected(func(report func(suspect)) { judgeCounts(one, two, report) })
	}
	wantKinds(t, "right", judge(func(_, _ *countsView) {}))
	wantKinds(t, "one too many", judge(func(one, two *countsView) { one.tally[0].active, two.tally[0].active = 2, 2 }), AuditCounts)
	wantKinds(t, "active for inactive", judge(func(one, two *countsView) {
		for _, v := range []*countsView{one, two} {
			v.tally[0].active, v.tally[0].inactive = 2, 3
		}
	}), AuditCounts)
	wantKinds(t, "a template", judge(func(one, two *countsView) { one.tally[0].templates, two.tally[0].templates = 0, 0 }), AuditCounts)
	wantKinds(t, "an unproven entry", judge(func(one, two *countsView) { one.tally[0].unproven, two.tally[0].unproven = 1, 1 }), AuditUnproven)
	wantKinds(t, "another unproven entry", judge(func(one, two *countsView) {
		one.tally[0].unproven, two.tally[0].unproven = 1, 1
		two.tally[0].bare++
	}))
	wantKinds(t, "only in one pass", judge(func(one, _ *countsView) { one.tally[0].active = 2 }))
	moving := func(opened uint64, more uint32) func(one, two *countsView) {
		return func(one, two *countsView) {
			for i, v := range []*countsView{one, two} {
				v.tally[0].conns += uint64(i) // other connections
				v.openedBy[0] += opened
				v.before[0].Active += more
				v.after[0].Active += more
			}
		}
	}
	wantKinds(t, "within what came and went", judge(moving(10, 10)))
	wantKinds(t, "beyond", judge(moving(10, 11)), AuditCountsMoving)
	wantKinds(t, "too few", judge(moving(0, ^uint32(0)-2)), AuditCountsMoving)
}

func TestAuditControlled(t *testing.T) {
	conn := bpfobj.LbConn6{Server: 7, Template: uint8(bpfobj.LbTemplateKindTEMPLATE_PORT), Netmask: 0x00ffffff}
	flow := func(last uint32) bpfobj.LbFlow {
		return fromFlow4(bpfobj.LbFlow4{Src: last<<24 | 0x000a0a0a, Dst: 1, Sport: uint16(last), Dport: 80, Protocol: 6})
	}
	one, two := flow(1), flow(2)
	key := templateKey(&one, &conn)
	if other := templateKey(&two, &conn); other != key {
		t.Fatalf("clients of one network have the templates %+v and %+v", key, other)
	}
	aside := asideKey(key, 7)
	holds := []holdView{newHold(&one, &conn), newHold(&two, &conn)}
	template := func(key bpfobj.LbFlow, server, controlled uint32) templateView {
		return newTemplate(&key, &bpfobj.LbConn6{Server: server, Fwmark: controlled})
	}
	for what, c := range map[string]struct {
		templates []templateView
		want      []AuditKind
	}{
		"right":               {[]templateView{template(key, 7, 2)}, nil},
		"too many":            {[]templateView{template(key, 7, 3)}, []AuditKind{AuditControlled}},
		"of another server":   {[]templateView{template(key, 8, 0)}, nil},
		"set aside":           {[]templateView{template(key, 8, 0), template(aside, 7, 2)}, nil},
		"set aside and wrong": {[]templateView{template(aside, 7, 1)}, []AuditKind{AuditControlled}},
		"both of one server":  {[]templateView{template(key, 7, 1), template(aside, 7, 1)}, nil},
	} {
		countControlled(c.templates, holds)
		wantKinds(t, what, suspected(func(report func(suspect)) { judgeControlled(c.templates, report) }), c.want...)
	}
}

// someIDs are two services of two servers each.
func someIDs() *idsView {
	v := &idsView{top: 2, order: []uint32{0, 1, 0, 0, 2, 3}, servers: make([]bpfobj.LbServer, 4)}
	for i := range uint32(2) {
		key := bpfobj.LbServiceKey{Fwmark: i + 1}
		svc := bpfobj.LbService{Id: i, First: 4 * i, Count: 2, Capacity: 4}
		svc.Check = serviceCheck(key, svc)
		v.keys, v.services = append(v.keys, key), append(v.services, svc)
		for id := 2 * i; id < 2*i+2; id++ {
			v.servers[id] = bpfobj.LbServer{Owner: key, Service: i, Flags: bpfobj.LbServerFlagSERVER_AVAILABLE, Port: uint16(id)}
		}
	}
	return v
}

func TestAuditIDs(t *testing.T) {
	resign := func(v *idsView, i int) { v.services[i].Check = serviceCheck(v.keys[i], v.services[i]) }
	owns := bpfobj.LbServerFlagSERVER_OWNS_REPLIES
	for what, c := range map[string]struct {
		damage func(*idsView)
		want   []AuditKind
	}{
		"sound": {func(*idsView) {}, nil},
		"a sum": {func(v *idsView) { v.services[0].Check++ }, []AuditKind{AuditServiceCheck}},
		"one id twice": {func(v *idsView) {
			v.services[1].Id = 0
			v.servers[2].Service, v.servers[3].Service = 0, 0
			resign(v, 1)
		}, []AuditKind{AuditServiceID}},
		"an unknown id":    {func(v *idsView) { v.top = 1 }, []AuditKind{AuditServiceID}},
		"overlapping":      {func(v *idsView) { v.services[0].Capacity = 8; resign(v, 0) }, []AuditKind{AuditExtentsOverlap}},
		"unknown server":   {func(v *idsView) { v.order[5] = 9 }, []AuditKind{AuditOrderServer, AuditServerUnlisted}},
		"another's server": {func(v *idsView) { v.order[5] = 0 }, []AuditKind{AuditOrderServer, AuditServerUnlisted}},
		"retired server":   {func(v *idsView) { v.servers[3].Flags = 0 }, []AuditKind{AuditOrderServer}},
		"owner":            {func(v *idsView) { v.servers[1].Flags |= owns }, []AuditKind{AuditReplyOwnerMissing}},
		"a weight":         {func(v *idsView) { v.servers[1].Weight = 3 }, []AuditKind{AuditServerWeight}},
		"a weight of one that is down": {func(v *idsView) {
			v.servers[1].Administrative, v.servers[1].Withheld, v.servers[1].Weight = 3, 100, 3
		}, []AuditKind{AuditServerWeight}},
		"one that is down": {func(v *idsView) { v.servers[1].Administrative, v.servers[1].Withheld = 3, 100 }, nil},
		"a weight of a retired server": {func(v *idsView) {
			v.servers[3].Flags, v.servers[3].Weight = 0, 3
		}, []AuditKind{AuditOrderServer}},
		"wrong owner": {func(v *idsView) {
			v.places, v.owners = []bpfobj.LbEndpoint{placeAt(v.servers[1])}, []bpfobj.LbReplyOwner{{Server: 1}}
		}, []AuditKind{AuditReplyOwner}},
	} {
		v := someIDs()
		c.damage(v)
		wantKinds(t, what, suspected(v.judge), c.want...)
	}
}

func TestAuditSchedulers(t *testing.T) {
	ids := &idsView{services: []bpfobj.LbService{
		{Id: 0, Scheduler: bpfobj.LbSchedulerSCHED_SH, Incarnation: 1}, {Id: 1, Scheduler: bpfobj.LbSchedulerSCHED_LC, Incarnation: 1, Count: 12},
	}}
	state := func(rule bpfobj.LbScheduler) bpfobj.LbServiceState {
		return bpfobj.LbServiceState{Incarnation: 1, Tree: bpfobj.LbTree{Tag: 5, Count: 12, Leaves: 16, Rule: rule}}
	}
	tree := func(active ...uint32) treeView {
		v := treeView{service: 1, state: state(bpfobj.LbSchedulerSCHED_LC), ids: []uint32{40, 41}, pairs: make([]bpfobj.LbTreePair, 1)}
		v.state.Tree.Count, v.state.Tree.Leaves = 2, 2
		v.pairs[0].Node[1] = 5<<32 | 41
		for _, n := range active {
			v.loads = append(v.loads, bpfobj.LbLoad{Active: n, Weight: 1})
		}
		return v
	}
	empty := bpfobj.LbServiceState{Incarnation: 1}
	for what, c := range map[string]struct {
		view schedView
		want []AuditKind
	}{
		"sound":           {schedView{buckets: []uint32{0}, states: []bpfobj.LbServiceState{empty, state(bpfobj.LbSchedulerSCHED_LC)}, trees: []treeView{tree(1, 1)}}, nil},
		"tables":          {schedView{buckets: []uint32{1, 2}, maglevs: []uint32{0}}, []AuditKind{AuditBucketsStale, AuditBucketsStale, AuditMaglevStale}},
		"localities":      {schedView{localities: []bpfobj.LbLocalityKey{{Service: 9}}, localitySets: []bpfobj.LbLocalityKey{{Service: 1}}}, []AuditKind{AuditLocalityStale, AuditLocalityStale}},
		"incarnation":     {schedView{states: []bpfobj.LbServiceState{{}}}, []AuditKind{AuditStateStale}},
		"tree of another": {schedView{states: []bpfobj.LbServiceState{empty, state(bpfobj.LbSchedulerSCHED_WLC)}}, []AuditKind{AuditTreeStale}},
		"tree of none":    {schedView{states: []bpfobj.LbServiceState{empty, empty, state(bpfobj.LbSchedulerSCHED_LC)}}, []AuditKind{AuditTreeStale}},
		"node":            {schedView{trees: []treeView{tree(1, 2)}}, []AuditKind{AuditTreeNode}},
	} {
		wantKinds(t, what, suspected(func(report func(suspect)) { c.view.judge(ids, report) }), c.want...)
	}
	busy := tree(1, 2)
	busy.moved = true
	wantKinds(t, "a tree in motion", suspected(busy.judge))
	busy = tree(1, 2)
	busy.state.Climbers = 1
	wantKinds(t, "a tree being climbed", suspected(busy.judge))
}

// The manual has each kind as the code has it.
func TestAuditKindsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range AuditKinds() {
		repair := k.Repair()
		if repair == "" {
			repair = "no"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |\n", k, k.Text(), repair); !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/audit.md does not have %s", row)
		}
		if k.Sound() == "" {
			t.Errorf("%s: nothing says why a sound table does not show it", k)
		}
	}
}
