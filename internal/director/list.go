// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"fmt"
	"slices"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Services lists all services, as a rule the latest added first; their servers
// in the order of Linux's list, the latest added first.
func (d *Director) Services() (all []model.ServiceStatus, err error) {
	err = d.editNow(func(t *table) error {
		services, err := d.serviceTally().read(t.ids.top)
		if err != nil {
			return err
		}
		servers, err := d.serverStatuses()
		if err != nil {
			return err
		}
		all = make([]model.ServiceStatus, 0, len(t.services))
		for _, key := range t.keys() {
			svc := t.services[key]
			st := model.ServiceStatus{
				Service: fromService(key, *svc),
				Stats:   services[svc.Id].Stats,
				Rates:   services[svc.Id].Rates,
				Servers: make([]model.ServerStatus, 0, svc.Count),
			}
			for _, id := range slices.Backward(t.order[svc.Id]) {
				st.Servers = append(st.Servers, servers[id])
			}
			all = append(all, st)
		}
		return nil
	})
	return all, err
}

// keys are those of all services, the highest id first.
func (t *table) keys() []bpfobj.LbServiceKey {
	keys := make([]bpfobj.LbServiceKey, 0, len(t.services))
	for key := range t.services {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b bpfobj.LbServiceKey) int {
		return cmp.Compare(t.services[b].Id, t.services[a].Id)
	})
	return keys
}

// serverStatuses are the servers by id, also those that are in no list, with
// their connections and counters.
func (d *Director) serverStatuses() ([]model.ServerStatus, error) {
	known := d.table.servers
	counts, err := d.serverTally().read(uint32(len(known)))
	if err != nil {
		return nil, err
	}
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, uint32(len(known)))
	if err != nil {
		return nil, fmt.Errorf("read the servers' connections: %w", err)
	}
	all := make([]model.ServerStatus, len(known))
	for id, s := range known {
		all[id] = model.ServerStatus{
			Server: fromServer(s),
			Active: loads[id].Active, Inactive: loads[id].Inactive, Persistent: loads[id].Persistent,
			Stats: counts[id].Stats, Rates: counts[id].Rates,
		}
	}
	return all, nil
}
