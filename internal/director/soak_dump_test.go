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

// dumpConns says all that the kernel has of some connections.
func (s *soak) dumpConns() {
	now, err := monotonic()
	s.must(err)
	clock, err := s.tableClock()
	s.must(err)
	s.say("now %d, the clock's tick %d, the time's %d", now, clock.Tick, now/uint64(TickLength))
	all := s.allEntries()
	for _, c := range all[:min(len(all), 20)] {
		found, err := s.connOf(c.Flow)
		s.must(err)
		s.say("left: %s, expires in %.1f s, reached %t: %+v", flowText(c.Flow), (float64(c.Expires)-float64(now))/1e9, found != nil && found.Index == c.Index, c)
	}
}
