// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"fmt"
	"slices"

	"imbang/internal/bpfobj"
)

// Unproven counts entries of the connection table whose clients nothing has shown to
// exist (bpf/proof.h).
type Unproven struct {
	Entries   uint64            `json:"entries"`
	Displaced uint64            `json:"displaced"`          // ended for others in a full table, ever
	Services  []ServiceUnproven `json:"services,omitempty"` // those that have most
}

// ServiceUnproven is a service's part of them.
type ServiceUnproven struct {
	Service string `json:"service"`
	Entries uint64 `json:"entries"`
}

// mostUnproven is how many services a status names.
const mostUnproven = 10

// unprovenEntries adds up those of the first n servers.
func (d *Director) unprovenEntries(n int) (u Unproven, err error) {
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, uint32(n))
	if err != nil {
		return u, fmt.Errorf("read the servers' unproven entries: %w", err)
	}
	servers, err := lookupAll[bpfobj.LbServer](d.maps.Servers, uint32(n))
	if err != nil {
		return u, fmt.Errorf("read servers: %w", err)
	}
	counts, err := d.handshakes()
	if err != nil {
		return u, err
	}
	u.Displaced = counts.Displaced
	services := map[bpfobj.LbServiceKey]uint64{}
	for id, l := range loads {
		if entries := uint64(unproven(l)); entries != 0 {
			u.Entries += entries
			services[servers[id].Owner] += entries
		}
	}
	for key, entries := range services {
		u.Services = append(u.Services, ServiceUnproven{fromKey(key).String(), entries})
	}
	slices.SortFunc(u.Services, func(a, b ServiceUnproven) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Service, b.Service))
	})
	u.Services = u.Services[:min(len(u.Services), mostUnproven)]
	return u, nil
}
