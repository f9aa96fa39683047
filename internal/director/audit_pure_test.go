// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"imbang/internal/bpfobj"
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

// aTable is a block of IPv4 whose lines 1 to 4 have entries, and the first of two buckets, which leads to
// three of them by slots and to the fourth by its chain.
type aTable struct {
	*block
	bucketReader
	line [lineBytes / 4]uint32
}

func newATable() *aTable {
	t := &aTable{block: &block{number: 3, lines: make([]byte, blockLines*lineBytes)}}
	t.geometry = 1<<32 | 2
	t.line[0] = 1 << tagsShift
	for i := range t.secret.Summand {
		t.secret.Summand[i] = 0x9e3779b9 * uint32(i+1)
	}
	t.setWord(unsafe.Offsetof(bpfobj.LbBlockHead{}.Kind), uint32(bpfobj.LbBlockKindBLOCK_ENTRIES4))
	t.setFree(^uint64(0) >> 2 &^ (1<<1 | 1<<2 | 1<<3 | 1<<4))
	for line, port := uint32(1), uint16(1); line <= 4; port++ {
		flow := fromFlow4(bpfobj.LbFlow4{Src: 7, Dst: 8, Sport: port, Dport: 80, Protocol: 6})
		hash := hashFlow(&t.secret, &flow)
		if hash&1 != 0 {
			continue // the other bucket's
		}
		index := t.number*indexLines + line
		*t.conn(line) = bpfobj.LbConn{Expires: 9<<32 | uint64(line), Index: index, Hash: uint32(hash)}
		*(*bpfobj.LbFlow4)(unsafe.Pointer(&t.lines[line*lineBytes+48])) = toFlow4(flow)
		if t.line[line] = tagOf(uint32(hash), t.line[0]) | index; line == 4 {
			t.line[line], t.line[bucketChain] = 0, index
		}
		line++
	}
	return t
}

func (t *aTable) setWord(at uintptr, word uint32) { binary.NativeEndian.PutUint32(t.lines[at:], word) }

func (t *aTable) setFree(free uint64) {
	binary.NativeEndian.PutUint64(t.lines[unsafe.Offsetof(bpfobj.LbBlockHead{}.Free):], free)
}

// What blocks say of lines, and whether a bucket leads to them. What does not fit is read again, which
// the tests with faults in the kernel's tables show.
func TestAuditLines(t *testing.T) {
	for what, c := range map[string]struct {
		damage func(*aTable)
		want   []AuditKind
		fits   bool
	}{
		"sound":                   {func(*aTable) {}, nil, true},
		"an entry without a slot": {func(t *aTable) { t.line[2] = 0 }, nil, true}, // judged behind all buckets
		"a line leaks":            {func(t *aTable) { t.setFree(t.free() &^ (1 << 9)) }, []AuditKind{AuditLineLeaked}, true},
		"one that was used":       {func(t *aTable) { t.conn(2).Expires &= deadTime - 1; t.line[2] = 0 }, []AuditKind{AuditLineLeaked}, true},
		"remains in a free line":  {func(t *aTable) { t.conn(9).Expires = 0xfd000020 }, nil, true},
		"a slot leads to none":    {func(t *aTable) { t.line[7] = 1<<24 | t.number*indexLines + 9 }, nil, false},
		"to another block":        {func(t *aTable) { t.line[7] = 1<<24 | 99*indexLines }, nil, false},
		"to a free line":          {func(t *aTable) { t.setFree(t.free() | 1<<2) }, nil, false},
		"by another tag":          {func(t *aTable) { t.line[2] += 1 << 24 }, nil, false},
		"two slots lead to one":   {func(t *aTable) { t.line[9] = t.line[2] }, nil, false},
		"a slot and the chain":    {func(t *aTable) { t.line[9] = tagOf(t.conn(4).Hash, t.line[0]) | t.conn(4).Index }, nil, false},
		"an entry's hash":         {func(t *aTable) { t.conn(2).Hash ^= 2 }, nil, false},
		"other tags":              {func(t *aTable) { t.line[0] ^= 1 << tagsShift }, nil, false},
		"an entry's index":        {func(t *aTable) { t.conn(2).Index++ }, nil, false},
		"an entry's flow":         {func(t *aTable) { t.lines[2*lineBytes+48]++ }, nil, false},
		"the chain leads nowhere": {func(t *aTable) { t.line[bucketChain] = 0xffffff }, nil, false},
		"its end leads nowhere":   {func(t *aTable) { t.conn(4).Next = 0xffffff }, nil, false},
		"a circle":                {func(t *aTable) { t.conn(4).Next = t.conn(4).Index }, nil, false},
		"more buckets": {func(t *aTable) { // the entries that have the bit are another's
			t.geometry = 1<<35 - 1<<32 | 8
		}, nil, false},
	} {
		table := newATable()
		c.damage(table)
		v := &linesView{taken: 8, hash: make([]uint32, 8*indexLines), next: make([]uint32, 8*indexLines), found: make([]bool, 8*indexLines), odd: map[uint32]bool{}}
		wantKinds(t, what, suspected(func(report func(suspect)) { v.read(table.block, &table.secret, report) }), c.want...)
		if got := v.fits(&table.bucketReader, 0, &table.line); got != c.fits {
			t.Errorf("%s: the bucket fits: %t, want %t", what, got, c.fits)
		}
		for line := uint32(1); what == "sound" && line < blockLines; line++ {
			at, ok := v.at(table.number*indexLines + line)
			if !ok || v.index(at) != table.number*indexLines+line || v.found[at] != (line <= 4) {
				t.Errorf("line %d: place %d, %t", line, at, ok)
			}
		}
	}
	v := &linesView{taken: 2, next: make([]uint32, 3*indexLines)}
	for index, want := range map[uint32]bool{0: true, 2*indexLines - 1: true, 2 * indexLines: false, spareFirst * indexLines: true, (spareFirst + 1) * indexLines: false} {
		if at, ok := v.at(index | 7<<24); ok != want || ok && v.index(at) != index {
			t.Errorf("index %d: place %d, %t, want %t", index, at, ok, want)
		}
	}
}

// What may look stray for another fault's sake is repaired after it.
func TestAuditRepairsInOrder(t *testing.T) {
	for _, c := range []struct{ fault, later AuditKind }{
		{AuditUnreached, AuditCallStray},
		{AuditLineFree, AuditCounts}, {AuditLineFree, AuditUnproven}, {AuditLineFree, AuditControlled},
	} {
		if alone := follows([]suspect{{kind: c.later}}); alone[c.later] {
			t.Errorf("%s without another fault is not repaired", c.later)
		}
		if both := follows([]suspect{{kind: c.later}, {kind: c.fault}}); !both[c.later] || both[c.fault] {
			t.Errorf("%s beside %s: %v is repaired later", c.later, c.fault, both)
		}
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
	opens := func(templates, bare uint32) func(one, two *countsView) {
		return func(one, two *countsView) {
			for _, v := range []*countsView{one, two} {
				v.tally[0].templates, v.tally[0].unproven = templates, bare
				two.openedBy[0]++
			}
		}
	}
	wantKinds(t, "more while some are opened", judge(opens(0, 1)))
	wantKinds(t, "fewer templates than there are", judge(opens(2, 2)), AuditCounts)
	wantKinds(t, "fewer unproven than there are", judge(opens(1, 3)), AuditUnproven)
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
	conn := entry{LbConn: bpfobj.LbConn{Server: 7, Template: uint8(bpfobj.LbTemplateKindTEMPLATE_PORT), Netmask: 0x00ffffff}}
	flow := func(last uint32) bpfobj.LbFlow {
		return fromFlow4(bpfobj.LbFlow4{Src: last<<24 | 0x000a0a0a, Dst: 1, Sport: uint16(last), Dport: 80, Protocol: 6})
	}
	one, two := flow(1), flow(2)
	key := templateKey(&one, &conn)
	if other := templateKey(&two, &conn); other != key {
		t.Fatalf("clients of one network have the templates %+v and %+v", key, other)
	}
	aside := asideKey(key, 7)
	of := func(flow bpfobj.LbFlow) holdView { return newHold(&entry{LbConn: conn.LbConn, Flow: flow}) }
	holds := []holdView{of(one), of(two)}
	template := func(key bpfobj.LbFlow, server, controlled uint32) templateView {
		return newTemplate(&entry{LbConn: bpfobj.LbConn{Server: server, Fwmark: controlled}, Flow: key})
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
