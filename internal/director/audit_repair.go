// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// What became of a repair, in AuditFinding.Repair.
const (
	repairDone    = "done"
	repairChanged = "not done: the table has changed meanwhile"
	repairNone    = "cannot be repaired"
	repairMissing = "not done: there is no such object"
	repairLater   = "not done: it follows from another fault, which is repaired first"
)

// repairFindings corrects what can be, under the director's lock, and says of each
// finding what became of it; it may change their order. any: something was done, or is to be
// judged again.
func (d *Director) repairFindings(found []suspect) (results []string, any bool, err error) {
	err = d.exclusively(func() error {
		results, any, err = d.repairAll(found)
		return err
	})
	return results, any, err
}

// follows are the kinds of faults that may be seen only because there are others. A call looks stray if
// no bucket leads to its template; an entry is not counted if its line counts as free.
func follows(found []suspect) map[AuditKind]bool {
	later := map[AuditKind]bool{}
	for _, s := range found {
		switch s.kind {
		case AuditUnreached:
			later[AuditCallStray] = true
		case AuditLineFree:
			later[AuditCounts], later[AuditUnproven], later[AuditControlled] = true, true, true
		}
	}
	return later
}

// repairAll repairs claims first, as nothing else of a claimed bucket can be; then lines that count
// as free, which a CPU may take at any time.
func (d *Director) repairAll(found []suspect) (results []string, any bool, err error) {
	rank := func(s suspect) int {
		switch s.kind {
		case AuditClaimed:
			return 0
		case AuditLineFree:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(found, func(a, b suspect) int { return rank(a) - rank(b) })
	later := follows(found)
	results = make([]string, len(found))
	rebuild := map[uint32]bool{} // services whose schedulers are to begin anew
	relist := map[uint32]bool{}  // services whose lists are written anew
	unlisted := false
	var weights []uint32 // ids of servers
	for i, s := range found {
		if later[s.kind] {
			results[i], any = repairLater, true
			continue
		}
		switch s.kind {
		case AuditStateStale, AuditTreeStale, AuditTreeNode:
			rebuild[s.id] = true
			results[i] = repairDone
		case AuditOrderServer, AuditExtentsOverlap:
			relist[s.id] = true
			results[i] = repairDone
		case AuditServerWeight:
			weights = append(weights, s.id)
			results[i] = repairDone
		case AuditServerUnlisted, AuditReplyOwner, AuditReplyOwnerMissing, AuditServiceCheck:
			unlisted = true
			results[i] = repairDone
		default:
			if results[i], err = d.repairOne(s); err != nil {
				return results, any, err
			}
		}
		any = any || results[i] == repairDone
	}
	if !unlisted && len(rebuild) == 0 && len(relist) == 0 && len(weights) == 0 {
		return results, any, nil
	}
	d.forgetTable() // as it is in the kernel
	err = d.edit(func(t *table) error {
		if err := errors.Join(d.reweighServers(t, weights), d.relistServices(t, relist), d.rebuildSchedulers(t, rebuild)); err != nil || !unlisted {
			return err
		}
		return d.rewrite(t)
	})
	d.forgetTable() // which slots are free follows from the lists
	return results, any, err
}

// reweighServers writes the effective weights of servers anew, and tells the
// schedulers of their services.
func (d *Director) reweighServers(t *table, ids []uint32) error {
	for _, id := range ids {
		if err := weigh(&t.servers[id]); err != nil {
			return err
		}
		if err := d.putServers(id); err != nil {
			return err
		}
		svc := t.services[t.servers[id].Owner]
		if svc == nil {
			continue
		}
		if position := slices.Index(t.order[svc.Id], id); position >= 0 {
			if err := d.changed(*svc, bpfobj.LbChangeEventCHANGE_UPDATE, uint32(position)); err != nil {
				return err
			}
		}
	}
	return nil
}

// relistServices gives services lists of their own, of the servers that are theirs.
func (d *Director) relistServices(t *table, services map[uint32]bool) error {
	for key, svc := range t.services {
		if !services[svc.Id] {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(t.order[svc.Id]), func(id uint32) bool {
			return int(id) >= len(t.servers) || !available(t.servers[id]) || t.servers[id].Service != svc.Id || t.servers[id].Owner != key
		})
		if err := d.relist(key, svc, own); err != nil {
			return err
		}
		if err := d.changed(*svc, bpfobj.LbChangeEventCHANGE_UNKNOWN, 0); err != nil {
			return err
		}
	}
	return nil
}

// rewrite writes again what follows from the lists: who is available, who owns
// replies, and the services' sums.
func (d *Director) rewrite(t *table) error {
	ids := make([]uint32, len(t.servers)) // reading the table cleared wrong marks
	for id := range ids {
		ids[id] = uint32(id)
	}
	if err := d.putServers(ids...); err != nil {
		return err
	}
	if err := d.repairReplyOwners(t); err != nil {
		return err
	}
	for key, svc := range t.services {
		if svc.Check != serviceCheck(key, *svc) {
			if err := d.putService(key, *svc); err != nil {
				return err
			}
		}
	}
	return nil
}

// rebuildSchedulers initialises what schedulers remember of services; what is left
// of services that are gone is cleared.
func (d *Director) rebuildSchedulers(t *table, services map[uint32]bool) error {
	for _, svc := range t.services {
		if !services[svc.Id] {
			continue
		}
		delete(services, svc.Id)
		if err := d.changed(*svc, bpfobj.LbChangeEventCHANGE_INIT, 0); err != nil {
			return err
		}
	}
	for id := range services {
		gone := bpfobj.LbService{Id: id}
		if err := d.changed(gone, bpfobj.LbChangeEventCHANGE_DONE, 0); err != nil {
			return err
		}
	}
	return nil
}

// repairOne corrects one finding, in the kernel where packets change the same.
func (d *Director) repairOne(s suspect) (string, error) {
	r := bpfobj.LbRepair{Flow: s.flow, Number: s.number, From: s.from, Server: s.id, Expires: s.hash}
	r.Flow.Family = max(r.Flow.Family, s.family)
	switch s.kind {
	case AuditClockStopped:
		return repairDone, startClocks(d.progs.StartClocks)
	case AuditConnServer, AuditDead, AuditRepliesStray:
		return d.removeEntry(&r)
	case AuditRepliesMissing:
		r.Kind = bpfobj.LbRepairKindREPAIR_REPLIES
	case AuditOverdue:
		return repairNone, nil
	case AuditUnreached:
		r.Kind = bpfobj.LbRepairKindREPAIR_ENTER
	case AuditSlotStray:
		return d.emptySlot(&r)
	case AuditClaimed:
		r.Kind = bpfobj.LbRepairKindREPAIR_CLAIM
	case AuditLineFree:
		return d.takeLine(&r)
	case AuditLineLeaked:
		r.Kind = bpfobj.LbRepairKindREPAIR_LINE
	case AuditCounts:
		r.Kind = bpfobj.LbRepairKindREPAIR_COUNTS
		r.Active, r.Inactive, r.Persistent = int32(-s.a), int32(-s.b), int32(-s.c)
	case AuditUnproven:
		r.Kind, r.Unproven = bpfobj.LbRepairKindREPAIR_COUNTS, int32(-s.a)
	case AuditControlled:
		r.Kind, r.Controlled = bpfobj.LbRepairKindREPAIR_CONTROLLED, int32(s.b-s.a)
	default:
		return d.deleteStale(s)
	}
	return d.runRepair(&r)
}

// slotTries is how often a bucket is tried to be claimed, which packets claim for microseconds.
const slotTries = 100

// emptySlot empties a slot of a bucket, or cuts its chain.
func (d *Director) emptySlot(r *bpfobj.LbRepair) (result string, err error) {
	r.Kind = bpfobj.LbRepairKindREPAIR_SLOT
	for range slotTries {
		if result, err = d.runRepair(r); err != nil || result != repairMissing {
			break
		}
	}
	return result, err
}

// takeLine takes the line of an entry, which packets may have prolonged since it was found.
func (d *Director) takeLine(r *bpfobj.LbRepair) (string, error) {
	buckets, err := d.newBucketReader()
	if err != nil {
		return "", err
	}
	e, err := buckets.entry(r.Number)
	if err != nil {
		return "", err
	}
	if e == nil || incarnation(&e.LbConn) != r.Expires {
		return repairChanged, nil
	}
	r.Kind, r.Expires = bpfobj.LbRepairKindREPAIR_LINE, e.Expires
	return d.runRepair(r)
}

// removeEntry removes one that nothing counts, with its call.
func (d *Director) removeEntry(r *bpfobj.LbRepair) (string, error) {
	r.Kind = bpfobj.LbRepairKindREPAIR_REMOVE
	result, err := d.runRepair(r)
	if number, ok := callNumber(r.Flow); ok && err == nil && result == repairDone {
		err = d.forgetCall(number)
	}
	return result, err
}

// forgetCall is call_forget of bpf/call.h.
func (d *Director) forgetCall(number uint32) error {
	var call bpfobj.LbCall
	var now uint32
	err := d.maps.CallNumbers.Lookup(number, &call)
	if err == nil && d.maps.Calls.Lookup(&call, &now) == nil && now == number {
		err = d.maps.Calls.Delete(&call)
	}
	if err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
		err = d.maps.CallNumbers.Delete(number)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget a call: %w", err)
	}
	return nil
}

// runRepair runs the program that corrects.
func (d *Director) runRepair(r *bpfobj.LbRepair) (string, error) {
	rc, err := d.progs.RepairTable.Run(&ebpf.RunOptions{Data: frameOf(r)})
	if err != nil {
		return "", fmt.Errorf("repair: %w", err)
	}
	switch bpfobj.LbRepairResult(rc) {
	case bpfobj.LbRepairResultREPAIR_DONE:
		return repairDone, nil
	case bpfobj.LbRepairResultREPAIR_CHANGED:
		return repairChanged, nil
	}
	return repairMissing, nil
}

// deleteStale deletes an entry that nothing uses.
func (d *Director) deleteStale(s suspect) (string, error) {
	var err error
	switch s.kind {
	case AuditBucketsStale:
		err = d.maps.BucketTables.Delete(s.id)
	case AuditMaglevStale:
		err = d.maps.Maglevs.Delete(s.id)
	case AuditLocalityStale:
		m := d.maps.Localities
		if s.free {
			m = d.maps.LocalitySets
		}
		err = m.Delete(s.locality)
	case AuditCallStray:
		return d.deleteCall(s)
	default:
		return repairNone, nil
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return repairChanged, nil
	}
	if err != nil {
		return "", fmt.Errorf("clear the schedulers' memory: %w", err)
	}
	return repairDone, nil
}
