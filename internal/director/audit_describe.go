// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// describe says what a finding is about.
func (n auditNames) describe(s suspect, repair string) AuditFinding {
	f := AuditFinding{Kind: s.kind.String(), Repair: repair}
	switch s.kind {
	case AuditUnreached, AuditDead, AuditOverdue, AuditRepliesStray, AuditRepliesMissing:
		f.Object = flowText(s.flow)
		f.Detail = fmt.Sprintf("entry %d", s.number)
	case AuditConnServer:
		f.Object = flowText(s.flow)
		f.Detail = fmt.Sprintf("server id %d", s.id)
	case AuditClockStopped:
		f.Object, f.Detail = "the table's clock", fmt.Sprintf("at tick %d", s.tick)
	case AuditSlotStray:
		f.Object = fmt.Sprintf("bucket %d", s.number)
		f.Detail = fmt.Sprintf("slot %d leads to entry %d", s.from, s.id&indexMask)
	case AuditClaimed:
		f.Object = fmt.Sprintf("bucket %d", s.number)
		f.Detail = fmt.Sprintf("control word %#x", s.from)
	case AuditLineFree, AuditLineLeaked:
		f.Object = fmt.Sprintf("entry %d", s.number)
	case AuditCounts:
		f.Object = n.serverText(s.id)
		f.Detail = fmt.Sprintf("counts %+d active, %+d inactive connections, %+d templates", s.a, s.b, s.c)
	case AuditCountsMoving:
		f.Object = n.serverText(s.id)
		f.Detail = fmt.Sprintf("counts between %+d and %+d connections", s.a, s.b)
	case AuditUnproven:
		f.Object = n.serverText(s.id)
		f.Detail = fmt.Sprintf("counts %+d unproven entries", s.a)
	case AuditControlled:
		f.Object = flowText(s.flow)
		f.Detail = fmt.Sprintf("says that it controls %d connections; there are %d", s.a, s.b)
	case AuditCallStray:
		f.Object = fmt.Sprintf("call number %d", s.number)
		if s.free {
			f.Detail = "a call leads to it"
		}
	case AuditServerUnlisted, AuditReplyOwnerMissing:
		f.Object = n.serverText(s.id)
	case AuditServerWeight:
		f.Object = n.serverText(s.id)
		f.Detail = fmt.Sprintf("has effective weight %d; its administrative weight and health give %d", s.a, s.b)
	case AuditOrderServer:
		f.Object = n.serviceText(s.id)
		f.Detail = fmt.Sprintf("slot %d has server id %d", s.number, s.from)
	case AuditExtentsOverlap:
		f.Object = n.serviceText(s.id)
		f.Detail = "with " + n.serviceText(s.from)
	case AuditReplyOwner:
		f.Object = fmt.Sprintf("%s/%s", netip.AddrPortFrom(fromAddress(s.place.Addr), swapPort(s.place.Port)), protocolName(s.place.Protocol))
		f.Detail = fmt.Sprintf("names server id %d", s.id)
	case AuditLocalityStale:
		f.Object = n.serviceText(s.id)
		f.Detail = fmt.Sprintf("destination %s", fromAddress(s.locality.Addr))
	case AuditTreeNode:
		f.Object = n.serviceText(s.id)
		f.Detail = fmt.Sprintf("node %d has server id %d", s.number, int32(s.from))
	default:
		f.Object = n.serviceText(s.id)
	}
	return f
}

func sortFindings(all []AuditFinding) {
	slices.SortFunc(all, func(a, b AuditFinding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Detail, b.Detail))
	})
}

func flowText(f bpfobj.LbFlow) string {
	end := func(a bpfobj.LbAddress, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(fromAddressOf(a, f.Family), swapPort(port))
	}
	if number, ok := callNumber(f); ok {
		return fmt.Sprintf("template of call number %d", number)
	}
	text := fmt.Sprintf("%s > %s/%s", end(f.Src, f.Sport), end(f.Dst, f.Dport), protocolName(f.Protocol))
	switch f.Template {
	case 0:
	case flowReplies:
		text = "replies " + text
	default:
		text = "template " + text
	}
	return text
}

// auditNames knows services and servers by id.
type auditNames struct {
	services map[uint32]model.ServiceKey
	servers  []bpfobj.LbServer
}

func (d *Director) auditNames() (n auditNames, err error) {
	set, err := d.config()
	if err != nil {
		return n, err
	}
	if n.servers, err = lookupAll[bpfobj.LbServer](d.maps.Servers, set.Servers); err != nil {
		return n, fmt.Errorf("read servers: %w", err)
	}
	keys, services, err := hashAll[bpfobj.LbServiceKey, bpfobj.LbService](d.maps.Services, hashBatch)
	n.services = map[uint32]model.ServiceKey{}
	for i := range services {
		n.services[services[i].Id] = fromKey(keys[i])
	}
	return n, err
}

// serverText names a server by its address, port and owner, as far as there is
// such.
func (n auditNames) serverText(id uint32) string {
	if int(id) >= len(n.servers) || never(n.servers[id]) {
		return fmt.Sprintf("server id %d", id)
	}
	s := n.servers[id]
	return fmt.Sprintf("server %s of %s (id %d)", netip.AddrPortFrom(fromAddress(s.Addr), swapPort(s.Port)), fromKey(s.Owner), id)
}

// serviceText names a service by its key, as far as there is such.
func (n auditNames) serviceText(id uint32) string {
	if key, ok := n.services[id]; ok {
		return fmt.Sprintf("service %s (id %d)", key, id)
	}
	return fmt.Sprintf("service id %d", id)
}
