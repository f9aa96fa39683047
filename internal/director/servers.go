// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// noService is the service of a retired server.
const noService = ^uint32(0)

// AddServer puts a real server at the head of a service's list. One that was
// deleted and still has connections comes back with them and its counters. Its
// health is up.
func (d *Director) AddServer(k model.ServiceKey, s model.Server) error {
	return d.AddServerWith(k, s, Begin{})
}

// Begin is what a server begins with: the zero value is what ipvsadm adds.
type Begin struct {
	Health    model.Health
	SlowStart time.Duration // as SetSlowStart; it begins at once
}

// AddServerWith is AddServer for a server of which more is known. One that is down gets
// no connection, not even before a SetHealth that would follow.
func (d *Director) AddServerWith(k model.ServiceKey, s model.Server, b Begin) error {
	if !b.Health.Valid() {
		return fmt.Errorf("service %s: server %s: %w: health %d", k, s.AddrPort(), model.ErrInvalid, b.Health)
	}
	slow, err := slowStart(b.SlowStart)
	if err != nil {
		return fmt.Errorf("service %s: server %s: %w", k, s.AddrPort(), err)
	}
	return d.edit(func(t *table) error {
		key, svc, err := t.service(k)
		if err != nil {
			return err
		}
		now, err := monotonic()
		if err != nil {
			return err
		}
		want := bpfobj.LbServer{
			Owner: key, Service: svc.Id,
			Flags: bpfobj.LbServerFlagSERVER_AVAILABLE, Quiescent: now,
		}
		toServer(s, &want)
		setHealth(&want, b.Health)
		want.SlowStart = slow
		if err := weigh(&want); err != nil {
			return err
		}
		if want.Source, err = d.source(s); err != nil {
			return err
		}
		if err := d.addServer(key, svc, want, s); err != nil {
			return fmt.Errorf("service %s: server %s: %w", k, s.AddrPort(), err)
		}
		return nil
	})
}

func (d *Director) addServer(key bpfobj.LbServiceKey, svc *bpfobj.LbService, want bpfobj.LbServer, s model.Server) error {
	// The checks come in Linux's order: scripts see which error is first.
	if err := errors.Join(checkNumbers(s), checkFamily(model.Family(key.Family), s)); err != nil {
		return err
	}
	t := d.table
	id, known := t.find(keyOf(want))
	if known && available(t.servers[id]) {
		return model.ErrServerExists
	}
	if err := singleHost(s.Addr); err != nil {
		return err
	}
	if err := d.makeRoom(key, svc); err != nil {
		return err
	}
	if !known {
		var err error
		if id, err = d.freeServerID(); err != nil {
			return err
		}
	} else if t.servers[id].Service != svc.Id {
		// It belonged to a service that was deleted meanwhile.
		d.staged.usedServers = append(d.staged.usedServers, id)
	}
	if old := t.servers[id]; !never(old) && opens(old, want) {
		d.staged.reopen = append(d.staged.reopen, id)
	}
	if err := d.claimReplyOwner(id, &want); err != nil {
		return err
	}
	t.total.states(want, 1)
	t.added++
	want.Added = t.added
	d.staged.servers = append(d.staged.servers, id)
	t.servers[id] = want
	t.enter(id)
	t.order[svc.Id] = append(t.order[svc.Id], id)
	t.live++
	svc.Count++
	return nil
}

// EditServer changes a server's administrative weight, thresholds and forwarding
// method. Its health stays.
func (d *Director) EditServer(k model.ServiceKey, s model.Server) error {
	return d.exclusively(func() error {
		alone, err := d.editsAlone()
		if err != nil {
			return err
		}
		if alone {
			return d.finish(d.editServer(lone{d}, k, s))
		}
		return d.editNow(func(t *table) error { return d.editServer(t, k, s) })
	})
}

// editsAlone reports whether an edit of one server may do without the table: it
// was not read yet, no other edit waits, and no service has a persistence engine,
// whose outbound servers depend on all others.
func (d *Director) editsAlone() (bool, error) {
	if d.table != nil || d.batching {
		return false, nil
	}
	set, err := d.config()
	return set.Engines == 0, err
}

func (d *Director) editServer(in places, k model.ServiceKey, s model.Server) error {
	svc, err := in.serviceOf(k)
	if err != nil {
		return err
	}
	if err := errors.Join(checkNumbers(s), checkFamily(k.Family, s)); err != nil {
		return fmt.Errorf("service %s: server %s: %w", k, s.AddrPort(), err)
	}
	at, err := in.serverOf(svc, k, s.AddrPort())
	if err != nil {
		return err
	}
	next, err := d.edited(at.server, s)
	if err != nil {
		return err
	}
	if d.table != nil {
		d.table.servers[at.id] = next
	}
	if err := d.putServer(at.id, next); err != nil {
		return err
	}
	if opens(at.server, next) {
		if err := d.reopen([]uint32{at.id}); err != nil {
			return err
		}
	}
	return d.changed(svc, bpfobj.LbChangeEventCHANGE_UPDATE, at.position)
}

// edited is what an edit makes of a server.
func (d *Director) edited(old bpfobj.LbServer, s model.Server) (next bpfobj.LbServer, err error) {
	next = old
	toServer(s, &next)
	if next.Source, err = d.source(s); err != nil {
		return next, err
	}
	return next, weigh(&next)
}

// checkNumbers refuses thresholds and weights out of range.
func checkNumbers(s model.Server) error {
	if s.Lower > s.Upper {
		return model.ErrThresholdRange
	}
	if s.Weight < 0 {
		return fmt.Errorf("%w: weight %d", model.ErrInvalid, s.Weight)
	}
	return nil
}

// checkFamily refuses a server of the other address family than its service's, unless
// it is behind a tunnel (ip_vs_genl_set_cmd).
func checkFamily(service model.Family, s model.Server) error {
	if s.Addr.IsValid() && !s.Addr.Is4In6() && model.FamilyOf(s.Addr) != service && !s.Forward.Encapsulates() {
		return fmt.Errorf("%w: a server of another address family needs a tunnel", model.ErrInvalid)
	}
	return nil
}

// singleHost refuses addresses that cannot be a server's.
func singleHost(a netip.Addr) error {
	if !model.SingleHost(a) {
		return fmt.Errorf("%w: %s is not the address of a single host", model.ErrInvalid, a)
	}
	return nil
}

// DeleteServer takes a server out of its service's list. Its connections
// stay, but their packets are dropped until it is added again.
func (d *Director) DeleteServer(k model.ServiceKey, addr netip.AddrPort) error {
	return d.editNow(func(t *table) error {
		key, svc, err := t.service(k)
		if err != nil {
			return err
		}
		id, err := t.server(k, addr)
		if err != nil {
			return err
		}
		position := slices.Index(t.order[svc.Id], id)
		rest := slices.Delete(slices.Clone(t.order[svc.Id]), position, position+1)
		if err := d.relist(key, svc, rest); err != nil {
			return fmt.Errorf("service %s: %w", k, err)
		}
		if err := d.changed(*svc, bpfobj.LbChangeEventCHANGE_DELETE, uint32(position)); err != nil {
			return err
		}
		t.retire(id)
		if err := d.putServers(id); err != nil {
			return err
		}
		return d.endOrphans()
	})
}

// server finds an available server of a service by its address.
func (t *table) server(k model.ServiceKey, addr netip.AddrPort) (uint32, error) {
	id, ok := t.find(serverKey{toKey(k), toAddress(addr.Addr()), swapPort(addr.Port())})
	if !ok || !available(t.servers[id]) {
		return 0, fmt.Errorf("service %s: server %s: %w", k, addr, model.ErrNoServer)
	}
	return id, nil
}

// relist writes a service's shorter list into other slots and changes over by
// one write of the service: a packet, or a command after one that was killed,
// sees the old list or the new one.
func (d *Director) relist(key bpfobj.LbServiceKey, svc *bpfobj.LbService, order []uint32) error {
	t := d.table
	next := *svc
	next.Count = uint32(len(order))
	if next.Capacity > 4 && next.Count <= next.Capacity/4 {
		next.Capacity /= 2
	}
	var err error
	if next.First, err = d.takeSlots(next.Capacity); err != nil {
		return err
	}
	if err := d.writing(); err != nil {
		return err
	}
	if err := d.addPages(nil, nil, []extent{placeOf(&next)}); err != nil {
		return err
	}
	slots := make([]uint32, len(order))
	for i := range slots {
		slots[i] = next.First + uint32(i)
	}
	if err := d.putSlots(slots, order); err != nil {
		return err
	}
	if err := d.putService(key, next); err != nil {
		return err
	}
	t.quarantine.holdExtent(placeOf(svc))
	*svc = next
	t.order[svc.Id] = order
	return nil
}

// retire makes a server one that is in no list.
func (t *table) retire(id uint32) {
	t.total.states(t.servers[id], -1)
	t.servers[id].Flags &^= bpfobj.LbServerFlagSERVER_AVAILABLE | bpfobj.LbServerFlagSERVER_DRAINING
	t.servers[id].Retired = t.quarantine.barriers
	t.spare = append(t.spare, id)
	t.live--
}

// lookAgain is how soon connections of retired servers may have ended.
const lookAgain = time.Second

// freeServerID finds an id that no server has and no connection refers to.
// New ids come first, so that a server that comes back finds its own again;
// retired ones are used up when they outnumber the living.
func (d *Director) freeServerID() (uint32, error) {
	t := d.table
	limit := d.mostServers()
	room := uint32(len(t.servers)) < limit
	if !room || len(t.servers)-t.live > t.live+64 {
		if id, found, err := d.retiredServerID(!room); found || err != nil {
			return id, err
		}
	}
	if !room {
		return 0, fmt.Errorf("%w: %d real servers (imbang attach --max-servers makes room for more)", model.ErrTableFull, limit)
	}
	t.servers = append(t.servers, bpfobj.LbServer{})
	return uint32(len(t.servers) - 1), nil
}

// retiredServerID takes the id of a deleted server without connections. If
// there must be one, those that had connections are looked at again.
func (d *Director) retiredServerID(must bool) (id uint32, found bool, err error) {
	t := d.table
	if t.scanned.IsZero() || must && len(t.spare) == 0 && time.Since(t.scanned) > lookAgain {
		if err := d.scanRetired(); err != nil {
			return 0, false, err
		}
	}
	for len(t.spare) > 0 {
		id := t.spare[len(t.spare)-1]
		t.spare = t.spare[:len(t.spare)-1]
		if available(t.servers[id]) {
			continue // it came back
		}
		// Before its connections are counted: a packet may be opening one.
		if err := d.settled(id); err != nil {
			return 0, false, err
		}
		// An edit that was killed may have left the id without memory.
		loads, err := lookupSpan[bpfobj.LbLoad](d.maps.Loads, id, 1)
		if err != nil {
			return 0, false, fmt.Errorf("read the servers' connections: %w", err)
		}
		if idle(loads[0]) {
			t.strike(id)
			d.strikeReplyOwner(id)
			d.staged.reuse(id)
			return id, true, nil
		}
	}
	return 0, false, nil
}

func idle(l bpfobj.LbLoad) bool { return l.Active == 0 && l.Inactive == 0 && l.Persistent == 0 }

// scanRetired finds all retired servers without connections.
func (d *Director) scanRetired() error {
	t := d.table
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, uint32(len(t.servers)))
	if err != nil {
		return fmt.Errorf("read the servers' connections: %w", err)
	}
	t.scanned, t.spare = time.Now(), nil
	for id, l := range slices.Backward(loads) {
		if !available(t.servers[id]) && idle(l) {
			t.spare = append(t.spare, uint32(id))
		}
	}
	return nil
}

// reuse notes that a server id had another server.
func (s *staged) reuse(id uint32) {
	if s.reused == nil {
		s.reused = map[uint32]bool{}
	}
	s.reused[id] = true
	s.usedServers = append(s.usedServers, id)
}

// opens reports whether an edit opens a server for connections: adding it
// again, raising or removing its upper threshold (__ip_vs_update_dest).
func opens(old, next bpfobj.LbServer) bool {
	return next.Upper == 0 || next.Upper > old.Upper
}

// Bits of LbLoad.Overloaded: LOAD_OVERLOADED and LOAD_UNPROVEN of bpf/types.h.
const loadOverloaded, loadUnproven = 1, 2

// overloaded reports whether a server has reached its upper threshold.
func overloaded(l bpfobj.LbLoad) bool { return l.Overloaded&loadOverloaded != 0 }

// unproven is how many unproven entries a server has.
func unproven(l bpfobj.LbLoad) uint32 { return l.Overloaded / loadUnproven }

// reopen opens servers that had reached their thresholds. That is a field of a
// value that packets count in, so the kernel writes it.
func (d *Director) reopen(ids []uint32) error {
	for _, id := range ids {
		var l bpfobj.LbLoad
		if err := d.maps.Loads.Lookup(id, &l); err != nil {
			return fmt.Errorf("read the servers' connections: %w", err)
		}
		if !overloaded(l) {
			continue
		}
		if err := d.writing(); err != nil {
			return err
		}
		change := bpfobj.LbChange{Event: bpfobj.LbChangeEventCHANGE_REOPEN, Position: id}
		if err := d.tell(&change); err != nil {
			return fmt.Errorf("reopen a server: %w", err)
		}
	}
	return nil
}
