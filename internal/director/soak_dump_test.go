// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"fmt"

	"imbang/internal/bpfobj"
)

// dumpTrees says which services have trees that are not theirs.
func (d *Director) dumpTrees() string {
	set, err := d.config()
	if err != nil {
		return err.Error()
	}
	states, err := lookupAll[bpfobj.LbServiceState](d.maps.ServiceStates, set.Services)
	if err != nil {
		return err.Error()
	}
	keys, services, err := hashAll[bpfobj.LbServiceKey, bpfobj.LbService](d.maps.Services, hashBatch)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("\ngeneration %d", set.Generation)
	for id, state := range states {
		of := "no service"
		for i, svc := range services {
			if svc.Id == uint32(id) {
				of = fmt.Sprintf("%s, scheduler %d, first %d, count %d, capacity %d", fromKey(keys[i]), svc.Scheduler, svc.First, svc.Count, svc.Capacity)
				if state.Tree.Count == svc.Count && state.Tree.First == svc.First && state.Tree.Rule == treeRule(svc.Scheduler, svc.Count) {
					of = ""
				}
			}
		}
		if state.Tree.Tag != 0 && of != "" {
			text += fmt.Sprintf("\n  service %d (%s) has tree %+v, climbers %#x", id, of, state.Tree, state.Climbers)
		}
	}
	return text
}
