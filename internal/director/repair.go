// SPDX-License-Identifier: Apache-2.0

package director

import "imbang/internal/bpfobj"

// repair makes good what a command left that was killed in the middle of an
// edit. The lists decide what the table is, and the table was read from them;
// what follows from it is written anew.
func (d *Director) repair(t *table, unlisted []uint32) error {
	d.marked = true                     // the generation is odd since the other edit
	if err := d.barrier(); err != nil { // what retired is not known
		return err
	}
	for _, id := range unlisted {
		s := &t.servers[id]
		if svc := t.services[s.Owner]; svc == nil || svc.Id != s.Service {
			s.Service = noService
		}
	}
	if err := d.putServers(unlisted...); err != nil {
		return err
	}
	if err := d.reopenBelow(t); err != nil {
		return err
	}
	if err := d.forgetStrays(t); err != nil {
		return err
	}
	if err := d.repairReplyOwners(t); err != nil {
		return err
	}
	return d.repairSchedulers(t)
}

// repairSchedulers lets schedulers learn anew what they remember of the lists, and
// takes the trees of services away that are gone. Memory that was made for a scheduler
// that its service did not get is made for the one that it has.
func (d *Director) repairSchedulers(t *table) error {
	states, err := lookupAll[bpfobj.LbServiceState](d.maps.ServiceStates, d.maps.ServiceStates.MaxEntries())
	if err != nil {
		return err
	}
	there := map[uint32]bool{}
	for _, svc := range t.services {
		there[svc.Id] = true
		event := bpfobj.LbChangeEventCHANGE_UNKNOWN
		if states[svc.Id].Incarnation != svc.Incarnation {
			event = bpfobj.LbChangeEventCHANGE_INIT
		}
		if err := d.changed(*svc, event, 0); err != nil {
			return err
		}
	}
	for id, state := range states {
		if state.Tree.Tag == 0 || there[uint32(id)] {
			continue
		}
		if err := d.changed(bpfobj.LbService{Id: uint32(id)}, bpfobj.LbChangeEventCHANGE_DONE, 0); err != nil {
			return err
		}
	}
	return nil
}

// reopenBelow opens servers that are below their threshold: one may have been
// raised just before.
func (d *Director) reopenBelow(t *table) error {
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, uint32(len(t.servers)))
	if err != nil {
		return err
	}
	var below []uint32
	for id, l := range loads {
		if upper := t.servers[id].Upper; overloaded(l) && (upper == 0 || l.Active+l.Inactive < upper) {
			below = append(below, uint32(id))
		}
	}
	return d.reopen(below)
}
