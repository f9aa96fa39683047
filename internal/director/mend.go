// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"

	"imbang/internal/bpfobj"
)

// mend makes good what a command left that was killed in the middle of an
// edit. The lists decide what the table is, and the table was read from them;
// what follows from it is written anew.
func (d *Director) mend(t *table, unlisted []uint32) error {
	d.marked = true // by whoever was killed
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
	if err := d.mendFronts(t); err != nil {
		return err
	}
	for _, svc := range t.services {
		if err := d.changed(*svc, bpfobj.LbChangeEventCHANGE_UNKNOWN, 0); err != nil {
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
		if upper := t.servers[id].Upper; l.Overloaded != 0 && (upper == 0 || l.Active+l.Inactive < upper) {
			below = append(below, uint32(id))
		}
	}
	return d.reopen(below)
}

// forgetStrays removes what schedulers remember for services that are gone or
// have another scheduler.
func (d *Director) forgetStrays(t *table) error {
	of := map[uint32]bpfobj.LbScheduler{}
	for _, svc := range t.services {
		of[svc.Id] = svc.Scheduler
	}
	stray := func(id uint32, schedulers ...bpfobj.LbScheduler) bool {
		return !slices.Contains(schedulers, of[id])
	}
	if err := d.writing(); err != nil {
		return err
	}
	err := deleteKeys(d.maps.BucketTables, func(id uint32, _ bpfobj.LbBuckets) bool {
		return stray(id, bpfobj.LbSchedulerSCHED_DH, bpfobj.LbSchedulerSCHED_SH)
	})
	if err != nil {
		return err
	}
	err = deleteKeys(d.maps.Maglevs, func(id uint32, _ bpfobj.LbMaglev) bool {
		return stray(id, bpfobj.LbSchedulerSCHED_MH)
	})
	if err != nil {
		return err
	}
	err = deleteKeys(d.maps.Localities, func(k bpfobj.LbLocalityKey, _ bpfobj.LbLocality) bool {
		return stray(k.Service, bpfobj.LbSchedulerSCHED_LBLC)
	})
	if err != nil {
		return err
	}
	return deleteKeys(d.maps.LocalitySets, func(k bpfobj.LbLocalityKey, _ bpfobj.LbLocalitySet) bool {
		return stray(k.Service, bpfobj.LbSchedulerSCHED_LBLCR)
	})
}
