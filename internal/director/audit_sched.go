// SPDX-License-Identifier: Apache-2.0

package director

import "imbang/internal/bpfobj"

// schedView is what a pass read of the schedulers' memory.
type schedView struct {
	states       []bpfobj.LbServiceState // by service id, below settings.services
	buckets      []uint32                // keys of bucket_tables
	maglevs      []uint32
	localities   []bpfobj.LbLocalityKey
	localitySets []bpfobj.LbLocalityKey
	trees        []treeView
}

// treeView is a service's tree with what its nodes depend on.
type treeView struct {
	service uint32
	state   bpfobj.LbServiceState
	pairs   []bpfobj.LbTreePair // from the tree's first slot on
	loads   []bpfobj.LbLoad     // by position
	ids     []uint32            // likewise
	moved   bool                // while it was read
}

// treeFew is TREE_FEW of bpf/sched/tree.h.
const treeFew = 12

// treeRule is the rule of the tree that a service with so many servers has, SCHED_NONE
// if it has none: tree_rule of bpf/sched.h with the NAME_tree of each scheduler, and
// what tree_rebuild of bpf/sched/tree.h makes no tree of.
func treeRule(s bpfobj.LbScheduler, servers uint32) bpfobj.LbScheduler {
	rule, least := s, uint32(treeFew)
	switch s {
	case bpfobj.LbSchedulerSCHED_RR, bpfobj.LbSchedulerSCHED_MH:
		rule = bpfobj.LbSchedulerSCHED_FO
	case bpfobj.LbSchedulerSCHED_WRR, bpfobj.LbSchedulerSCHED_FO:
		rule, least = bpfobj.LbSchedulerSCHED_FO, 2
	case bpfobj.LbSchedulerSCHED_LBLC, bpfobj.LbSchedulerSCHED_LBLCR:
		rule = bpfobj.LbSchedulerSCHED_WLC
	case bpfobj.LbSchedulerSCHED_DH, bpfobj.LbSchedulerSCHED_SH, bpfobj.LbSchedulerSCHED_TWOS:
		rule = bpfobj.LbSchedulerSCHED_NONE
	}
	if servers < least {
		return bpfobj.LbSchedulerSCHED_NONE
	}
	return rule
}

func (v *schedView) judge(ids *idsView, report func(suspect)) {
	of := map[uint32]*bpfobj.LbService{}
	for i := range ids.services {
		of[ids.services[i].Id] = &ids.services[i]
	}
	has := func(id uint32, schedulers ...bpfobj.LbScheduler) bool {
		svc := of[id]
		for _, s := range schedulers {
			if svc != nil && svc.Scheduler == s {
				return true
			}
		}
		return false
	}
	for _, id := range v.buckets {
		if !has(id, bpfobj.LbSchedulerSCHED_DH, bpfobj.LbSchedulerSCHED_SH) {
			report(suspect{kind: AuditBucketsStale, id: id})
		}
	}
	for _, id := range v.maglevs {
		if !has(id, bpfobj.LbSchedulerSCHED_MH) {
			report(suspect{kind: AuditMaglevStale, id: id})
		}
	}
	for _, k := range v.localities {
		if !has(k.Service, bpfobj.LbSchedulerSCHED_LBLC) {
			report(suspect{kind: AuditLocalityStale, id: k.Service, locality: k})
		}
	}
	for _, k := range v.localitySets {
		if !has(k.Service, bpfobj.LbSchedulerSCHED_LBLCR) {
			report(suspect{kind: AuditLocalityStale, id: k.Service, locality: k, free: true})
		}
	}
	for id, state := range v.states {
		judgeState(uint32(id), &state, of[uint32(id)], report)
	}
	for i := range v.trees {
		v.trees[i].judge(report)
	}
}

func judgeState(id uint32, state *bpfobj.LbServiceState, svc *bpfobj.LbService, report func(suspect)) {
	t := &state.Tree
	if svc == nil {
		if t.Tag != 0 {
			report(suspect{kind: AuditTreeStale, id: id, number: t.Tag})
		}
		return
	}
	if state.Incarnation != svc.Incarnation ||
		svc.Scheduler == bpfobj.LbSchedulerSCHED_RR && uint32(state.RrCursor>>32) != svc.Incarnation {
		report(suspect{kind: AuditStateStale, id: id, number: state.Incarnation})
	}
	if t.Tag != 0 && (t.Rule != treeRule(svc.Scheduler, svc.Count) || t.First != svc.First || t.Count != svc.Count) {
		report(suspect{kind: AuditTreeStale, id: id, number: t.Tag})
	}
}

// treePrice is struct cost of bpf/sched/cost.h.
type treePrice struct{ load, weight int64 }

func (c treePrice) lessThan(d treePrice) bool { return c.load*d.weight < d.load*c.weight }

// treeCost is cost_by of bpf/sched/tree.h.
func treeCost(rule bpfobj.LbScheduler, l bpfobj.LbLoad) treePrice {
	weight := int64(l.Weight)
	dear := treePrice{1, 0}
	if weight <= 0 || overloaded(l) {
		return dear
	}
	overhead := int64(l.Active)<<8 + int64(l.Inactive)
	switch rule {
	case bpfobj.LbSchedulerSCHED_LC:
		return treePrice{overhead, 1}
	case bpfobj.LbSchedulerSCHED_WLC:
		return treePrice{overhead, weight}
	case bpfobj.LbSchedulerSCHED_SED:
		return treePrice{int64(l.Active) + 1, weight}
	case bpfobj.LbSchedulerSCHED_NQ:
		if l.Active == 0 {
			return treePrice{0, 1}
		}
		return treePrice{int64(l.Active) + 1, weight}
	case bpfobj.LbSchedulerSCHED_OVF:
		if int64(l.Active) > weight {
			return dear
		}
	}
	return treePrice{1, weight}
}

// judge plays the tournament of a tree that did not change while it was read.
func (v *treeView) judge(report func(suspect)) {
	t := &v.state.Tree
	if v.moved || uint32(v.state.Climbers) != 0 || t.Leaves == 0 {
		return
	}
	const none = ^uint32(0)
	// winner of a node, as it is written or of a leaf
	winner := func(node uint32) (uint32, bool) {
		if node >= t.Leaves {
			if node -= t.Leaves; node < t.Count {
				return v.ids[node], true
			}
			return none, true
		}
		value := v.pairs[node/2].Node[node&1]
		return uint32(value), uint32(value>>32) == t.Tag
	}
	at := make(map[uint32]int, len(v.ids))
	for i, id := range v.ids {
		at[id] = i
	}
	price := func(id uint32) treePrice {
		if i, ok := at[id]; ok {
			return treeCost(t.Rule, v.loads[i])
		}
		return treePrice{1, 0}
	}
	for node := t.Leaves - 1; node > 0; node-- {
		is, own := winner(node)
		left, _ := winner(2 * node)
		right, _ := winner(2*node + 1)
		l, r := price(left), price(right)
		if r.weight == 0 {
			right = none
		}
		want := right
		if l.lessThan(r) {
			want = left
		}
		if !own || is != want {
			report(suspect{kind: AuditTreeNode, id: v.service, number: node, from: is, a: int64(v.state.Climbers)})
			return
		}
	}
}
