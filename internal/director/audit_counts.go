// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"slices"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// connTally is what a pass counted of a server's connections. Sums of identities tell
// whether they are the same ones in another pass.
type connTally struct {
	active, inactive, templates uint32
	conns                       uint64 // sum of identities, and of activity
	templ                       uint64 // likewise
	unproven                    uint32 // of both kinds
	bare                        uint64 // likewise
}

// countsView is what a pass read of servers' counts, by server id.
type countsView struct {
	before, after          []bpfobj.LbLoad // read before the connections, and behind
	openedBefore, openedBy []uint64        // connections that the servers' counters have
	tally                  []connTally
	slack                  int64 // programs that may be under way
}

func (v *countsView) add(c *entry) {
	if int(c.Server) >= len(v.tally) {
		return
	}
	t, hash := &v.tally[c.Server], c.identity()
	if c.Flags&connUnproven != 0 {
		t.unproven++
		t.bare += hash
	}
	switch {
	case c.Flow.Template != 0:
		t.templates++
		t.templ += hash
	case c.Flags&connInactive != 0:
		t.inactive++
		t.conns += hash ^ inactiveSalt
	default:
		t.active++
		t.conns += hash
	}
}

const (
	connInactive = uint8(bpfobj.LbConnFlagCONN_INACTIVE)
	connHairpin  = uint8(bpfobj.LbConnFlagCONN_HAIRPIN)
	connUnproven = uint8(bpfobj.LbConnFlagCONN_UNPROVEN)
	connListed   = uint8(bpfobj.LbConnFlagCONN_LISTED)
	// connHasReplies is CONN_HAS_REPLIES of bpf/replies.h.
	connHasReplies = connListed | connHairpin

	inactiveSalt = 0x9e3779b97f4a7c15
)

// bounds are the least and the most by which a server's count of connections can
// be too high. Connections that lived while all were read were counted once, those
// that came or went once or not at all.
func (v *countsView) bounds(id int) (least, most int64, known bool) {
	opened := int64(v.openedBy[id] - v.openedBefore[id])
	total := func(l bpfobj.LbLoad) int64 { return int64(int32(l.Active)) + int64(int32(l.Inactive)) }
	ended := max(0, opened-(total(v.after[id])-total(v.before[id])))
	d := total(v.before[id]) - int64(v.tally[id].active) - int64(v.tally[id].inactive)
	return d - ended - v.slack, d + opened + v.slack, opened >= 0
}

// judgeCounts compares two passes: what did not move is exact, else bounds decide. What was there in
// both passes was there all the time between them, so a count is never below it; and it is above by no
// more than was opened meanwhile.
func judgeCounts(one, two *countsView, report func(suspect)) {
	for id := range min(len(one.tally), len(two.tally)) {
		s := suspect{kind: AuditCounts, id: uint32(id)}
		a, b := one.tally[id], two.tally[id]
		l := one.before[id]
		opened := int64(two.openedBy[id] - one.openedBefore[id])
		wrong := func(more int64) bool { return more < 0 || more > 0 && (opened == 0 || more > opened+one.slack) }
		same := func(get func(bpfobj.LbLoad) [2]uint32) bool {
			return get(one.before[id]) == get(one.after[id]) && get(one.after[id]) == get(two.before[id]) && get(two.before[id]) == get(two.after[id])
		}
		if (opened == 0 || a.active+a.inactive == 0) && a.conns == b.conns && a.active == b.active && a.inactive == b.inactive &&
			same(func(l bpfobj.LbLoad) [2]uint32 { return [2]uint32{l.Active, l.Inactive} }) {
			more, other := int64(int32(l.Active-a.active)), int64(int32(l.Inactive-a.inactive))
			if opened == 0 || wrong(more) || wrong(other) {
				s.a, s.b = more, other
			}
		} else {
			judgeMoving(one, two, id, report)
		}
		if a.templ == b.templ && a.templates == b.templates &&
			same(func(l bpfobj.LbLoad) [2]uint32 { return [2]uint32{l.Persistent} }) {
			if more := int64(int32(l.Persistent - a.templates)); wrong(more) {
				s.c = more
			}
		}
		if s.a != 0 || s.b != 0 || s.c != 0 {
			report(s)
		}
		more := int64(unproven(l)) - int64(a.unproven)
		if a.bare == b.bare && a.unproven == b.unproven && same(func(l bpfobj.LbLoad) [2]uint32 { return [2]uint32{unproven(l)} }) && wrong(more) {
			report(suspect{kind: AuditUnproven, id: uint32(id), a: more})
		}
	}
}

func judgeMoving(one, two *countsView, id int, report func(suspect)) {
	least1, most1, known1 := one.bounds(id)
	least2, most2, known2 := two.bounds(id)
	if !known1 || !known2 {
		return
	}
	least, most := max(least1, least2), min(most1, most2)
	if least <= most && (least1 > 0 && least2 > 0 || most1 < 0 && most2 < 0) {
		report(suspect{kind: AuditCountsMoving, id: uint32(id), a: least, b: most})
	}
}

// templateView is a template and what it says that it controls.
type templateView struct {
	hash       uint64 // of its key and server
	flow       bpfobj.LbFlow
	server     uint32
	controlled uint32
	counted    uint32
	conns      uint64 // sum of identities
	ambiguous  bool   // there is one set aside of the same server
}

// holdView is a connection that holds a template: one that is valid, or one that
// was set aside.
type holdView struct{ valid, aside, conn uint64 }

// callKey is call_flow of bpf/call.h.
func callKey(number uint32, family uint8) bpfobj.LbFlow {
	key := fromFlow4(bpfobj.LbFlow4{Src: number, Protocol: callProtocol, Template: 1})
	key.Family = family
	return key
}

// templateKey is template_flow of bpf/template.h.
func templateKey(flow *bpfobj.LbFlow, c *entry) (t bpfobj.LbFlow) {
	t.Src = maskOf(flow, c.Netmask)
	t.Template, t.Family = 1, flow.Family
	if bpfobj.LbTemplateKind(c.Template) == bpfobj.LbTemplateKindTEMPLATE_MARK {
		if model.Family(flow.Family) == model.IPv4 {
			t.Dst = fromFlow4(bpfobj.LbFlow4{Dst: ntohl(c.Fwmark)}).Dst
		} else {
			t.Dst.Word[0] = ntohl(c.Fwmark)
		}
		return t
	}
	t.Protocol, t.Dst = flow.Protocol, flow.Dst
	if bpfobj.LbTemplateKind(c.Template) == bpfobj.LbTemplateKindTEMPLATE_PORT {
		t.Dport = flow.Dport
	}
	return t
}

// asideKey is template_set_aside of bpf/template.h.
func asideKey(t bpfobj.LbFlow, server uint32) bpfobj.LbFlow {
	t.Dport, t.Sport, t.Pad = invalidPort, uint16(server), uint8(server>>16)
	return t
}

// maskOf is address_mask of bpf/template.h, of a flow's client.
func maskOf(flow *bpfobj.LbFlow, netmask uint32) (a bpfobj.LbAddress) {
	a = flow.Src
	if model.Family(flow.Family) == model.IPv4 {
		a.Word[3] &= netmask
		return a
	}
	for i := range a.Word {
		a.Word[i] &= ntohl(prefixWord(int(netmask) - 32*i))
	}
	return a
}

func prefixWord(bits int) uint32 {
	switch {
	case bits <= 0:
		return 0
	case bits >= 32:
		return ^uint32(0)
	}
	return ^uint32(0) << (32 - bits)
}

func serverHash(flow bpfobj.LbFlow, server uint32) uint64 {
	return keyHash(&flow) ^ (uint64(server)+1)*inactiveSalt
}

func newHold(c *entry) holdView {
	if bpfobj.LbTemplateKind(c.Template) == bpfobj.LbTemplateKindTEMPLATE_CALL {
		// It keeps its key when it becomes invalid.
		template := serverHash(callKey(c.Fwmark, c.Flow.Family), c.Server)
		return holdView{template, template, c.identity()}
	}
	key := templateKey(&c.Flow, c)
	return holdView{serverHash(key, c.Server), serverHash(asideKey(key, c.Server), c.Server), c.identity()}
}

func newTemplate(c *entry) templateView {
	return templateView{hash: serverHash(c.Flow, c.Server), flow: c.Flow, server: c.Server, controlled: c.Fwmark}
}

// countControlled counts the connections of templates, and sorts these.
func countControlled(templates []templateView, holds []holdView) {
	slices.SortFunc(templates, func(a, b templateView) int { return cmp.Compare(a.hash, b.hash) })
	find := func(hash uint64) *templateView {
		i, ok := slices.BinarySearchFunc(templates, hash, func(t templateView, h uint64) int { return cmp.Compare(t.hash, h) })
		if !ok {
			return nil
		}
		return &templates[i]
	}
	for _, h := range holds {
		t, aside := find(h.valid), find(h.aside)
		if t != nil && aside != nil && t != aside {
			t.ambiguous, aside.ambiguous = true, true
		}
		if t == nil {
			t = aside
		}
		if t != nil {
			t.counted++
			t.conns += h.conn
		}
	}
}

func judgeControlled(templates []templateView, report func(suspect)) {
	for _, t := range templates {
		if t.controlled != t.counted && !t.ambiguous {
			report(suspect{kind: AuditControlled, flow: t.flow, id: t.server, hash: t.conns, a: int64(t.controlled), b: int64(t.counted)})
		}
	}
}
