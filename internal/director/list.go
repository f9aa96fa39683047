// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Services lists all services, and the servers of each, in the order of Linux's
// lists.
func (d *Director) Services() (all []model.ServiceStatus, err error) {
	err = d.read(func(t *table) error {
		services, err := d.serviceTally().read(t.ids.top)
		if err != nil {
			return err
		}
		servers, err := d.serverStatuses(t)
		if err != nil {
			return err
		}
		all = make([]model.ServiceStatus, 0, len(t.services))
		for _, key := range t.keys() {
			svc := t.services[key]
			st := model.ServiceStatus{
				Service: fromService(key, *svc),
				Stats:   services[svc.Id].Stats,
				Total:   services[svc.Id].total,
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

// keys are those of all services in the order of Linux's hash tables: by
// addresses and then by marks, the latest added, which as a rule has the
// highest id, at the head of its bucket.
func (t *table) keys() []bpfobj.LbServiceKey {
	keys := slices.Collect(maps.Keys(t.services))
	slices.SortFunc(keys, func(a, b bpfobj.LbServiceKey) int {
		return cmp.Or(
			cmp.Compare(min(a.Fwmark, 1), min(b.Fwmark, 1)),
			cmp.Compare(bucket(a), bucket(b)),
			cmp.Compare(t.services[b].Id, t.services[a].Id))
	})
	return keys
}

// bucketSalt is what Linux takes from an address in its memory, which is
// another one in each network namespace: one for all makes listings repeat.
const bucketSalt = 80

// bucket is ip_vs_svc_hashkey and ip_vs_svc_fwm_hashkey, of 256 buckets.
func bucket(k bpfobj.LbServiceKey) uint8 {
	if k.Fwmark != 0 {
		return bucketSalt ^ uint8(k.Fwmark)
	}
	words := k.Addr.Word[:]
	if model.Family(k.Family) == model.IPv4 {
		words = words[3:]
	}
	fold := uint32(bucketSalt) ^ uint32(k.Protocol)
	for _, w := range words {
		fold ^= ntohl(w)
	}
	port := swapPort(k.Port)
	return uint8(fold) ^ uint8(port>>8) ^ uint8(port)
}

// serverStatuses are the servers by id, also those that are in no list, with
// their connections and counters.
func (d *Director) serverStatuses(t *table) ([]model.ServerStatus, error) {
	known := t.servers
	counts, err := d.serverTally().read(uint32(len(known)))
	if err != nil {
		return nil, err
	}
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, uint32(len(known)))
	if err != nil {
		return nil, fmt.Errorf("read the servers' connections: %w", err)
	}
	now, err := monotonic()
	if err != nil {
		return nil, err
	}
	all := make([]model.ServerStatus, len(known))
	for id, s := range known {
		all[id] = model.ServerStatus{
			Server: fromServer(s), Health: healthOf(&s),
			Draining: draining(s), Deadline: draining(s) && s.DrainUntil != 0, DrainLeft: drainLeft(s, now),
			SlowStart: time.Duration(s.SlowStart) * time.Millisecond, Ramp: ramp(s, now),
			Active: loads[id].Active, Inactive: loads[id].Inactive, Persistent: loads[id].Persistent,
			Stats: counts[id].Stats, Total: counts[id].total, Rates: counts[id].Rates,
		}
	}
	return all, nil
}
