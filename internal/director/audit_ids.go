// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"slices"

	"imbang/internal/bpfobj"
)

// idsView is what a pass read of services and servers.
type idsView struct {
	services []bpfobj.LbService
	keys     []bpfobj.LbServiceKey
	servers  []bpfobj.LbServer // by id; below settings.servers
	order    []uint32
	owners   []bpfobj.LbReplyOwner
	places   []bpfobj.LbEndpoint
	top      uint32 // settings.services
}

// listed calls for each server of a service's list, as far as the table reaches.
func (v *idsView) listed(svc *bpfobj.LbService, call func(slot, id uint32)) {
	for slot := svc.First; slot-svc.First < svc.Count && int(slot) < len(v.order); slot++ {
		call(slot, v.order[slot])
	}
}

func (v *idsView) judge(report func(suspect)) {
	v.judgeServices(report)
	inList := make([]bool, len(v.servers))
	for i := range v.services {
		svc := &v.services[i]
		v.listed(svc, func(slot, id uint32) {
			if int(id) >= len(v.servers) {
				report(suspect{kind: AuditOrderServer, id: svc.Id, number: slot, from: id})
				return
			}
			inList[id] = true
			if s := &v.servers[id]; !available(*s) || s.Service != svc.Id || s.Owner != v.keys[i] {
				report(suspect{kind: AuditOrderServer, id: svc.Id, number: slot, from: id})
			}
		})
	}
	for id := range v.servers {
		s := v.servers[id]
		if available(s) && !inList[id] {
			report(suspect{kind: AuditServerUnlisted, id: uint32(id)})
		}
		if available(s) && s.Weight != effective(s) {
			report(suspect{kind: AuditServerWeight, id: uint32(id), a: int64(s.Weight), b: int64(effective(s))})
		}
	}
	v.judgeOwners(report)
}

func (v *idsView) judgeServices(report func(suspect)) {
	used := map[uint32]bool{}
	byPlace := make([]int, 0, len(v.services))
	for i := range v.services {
		svc := &v.services[i]
		if svc.Check != serviceCheck(v.keys[i], *svc) {
			report(suspect{kind: AuditServiceCheck, id: svc.Id, hash: svc.Check})
		}
		if used[svc.Id] || svc.Id >= v.top {
			report(suspect{kind: AuditServiceID, id: svc.Id})
		}
		used[svc.Id] = true
		if svc.Capacity > 0 {
			byPlace = append(byPlace, i)
		}
	}
	slices.SortFunc(byPlace, func(a, b int) int { return cmp.Compare(v.services[a].First, v.services[b].First) })
	end, owner := uint32(0), uint32(0)
	for _, i := range byPlace {
		svc := &v.services[i]
		if svc.First < end || svc.Count > svc.Capacity {
			report(suspect{kind: AuditExtentsOverlap, id: svc.Id, from: owner})
		}
		if to := svc.First + svc.Capacity; to > end {
			end, owner = to, svc.Id
		}
	}
}

func (v *idsView) judgeOwners(report func(suspect)) {
	has := make([]bool, len(v.servers))
	for i, o := range v.owners {
		if int(o.Server) < len(v.servers) && ownsReplies(v.servers[o.Server]) && placeAt(v.servers[o.Server]) == v.places[i] {
			has[o.Server] = true
			continue
		}
		report(suspect{kind: AuditReplyOwner, id: o.Server, place: v.places[i]})
	}
	for id := range v.servers {
		if ownsReplies(v.servers[id]) && !has[id] {
			report(suspect{kind: AuditReplyOwnerMissing, id: uint32(id), place: placeAt(v.servers[id])})
		}
	}
}
