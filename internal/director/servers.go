// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"slices"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// noService is the service of a retired server.
const noService = ^uint32(0)

// AddServer puts a real server at the head of a service's list. One that was
// deleted and still has connections comes back with them and its counters.
func (d *Director) AddServer(k model.ServiceKey, s model.Server) error {
	t, err := d.load()
	if err != nil {
		return err
	}
	key, svc, err := t.service(k)
	if err != nil {
		return err
	}
	want := bpfobj.LbServer{Owner: key}
	toServer(s, &want)
	name := fmt.Sprintf("service %s: server %s", k, s.AddrPort())
	if err := checkNumbers(s); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	// The checks come in Linux's order: scripts see which error is first.
	id, known := t.index[keyOf(want)]
	if known && available(t.servers[id]) {
		return fmt.Errorf("%s: %w", name, model.ErrServerExists)
	}
	if err := singleHost(s.Addr); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !known {
		if id, err = d.freeServerID(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := d.zeroServer(id); err != nil {
			return err
		}
	} else if t.servers[id].Service != svc.Id {
		// It belonged to a service that was deleted meanwhile.
		if err := d.zeroServer(id); err != nil {
			return err
		}
	}
	if err := d.place(key, svc, id); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	want.Service = svc.Id
	want.LastWeight = s.Weight
	want.Flags = bpfobj.LbServerFlagSERVER_AVAILABLE
	if err := d.putServer(id, want); err != nil {
		return err
	}
	t.index[keyOf(want)] = id
	t.order[svc.Id] = append(t.order[svc.Id], id)
	t.live++
	svc.Count++
	if err := d.noteServers(); err != nil {
		return err
	}
	if err := d.putService(key, *svc); err != nil {
		return err
	}
	return d.changed(*svc, bpfobj.LbChangeEventCHANGE_ADD, int(svc.Count-1))
}

// EditServer changes a server's weight, thresholds and forwarding method.
func (d *Director) EditServer(k model.ServiceKey, s model.Server) error {
	t, err := d.load()
	if err != nil {
		return err
	}
	_, svc, err := t.service(k)
	if err != nil {
		return err
	}
	if err := checkNumbers(s); err != nil {
		return fmt.Errorf("service %s: server %s: %w", k, s.AddrPort(), err)
	}
	id, err := t.server(k, s.AddrPort())
	if err != nil {
		return err
	}
	next := t.servers[id]
	toServer(s, &next)
	if s.Weight != 0 { // quiescing keeps the last one, for mh
		next.LastWeight = s.Weight
	}
	if err := d.putServer(id, next); err != nil {
		return err
	}
	return d.changed(*svc, bpfobj.LbChangeEventCHANGE_UPDATE, 0)
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

// singleHost refuses addresses that cannot be a server's (ip_vs_new_dest). A
// subnet's broadcast address is not known to be one here.
func singleHost(a netip.Addr) error {
	broadcast := netip.AddrFrom4([4]byte{255, 255, 255, 255})
	if !a.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() && a.Is6() || a == broadcast {
		return fmt.Errorf("%w: %s is not the address of a single host", model.ErrInvalid, a)
	}
	return nil
}

// DeleteServer takes a server out of its service's list. Its connections
// stay, but their packets are dropped until it is added again.
func (d *Director) DeleteServer(k model.ServiceKey, addr netip.AddrPort) error {
	t, err := d.load()
	if err != nil {
		return err
	}
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
	if err := d.relist(key, svc, rest, svc.Capacity); err != nil {
		return fmt.Errorf("service %s: %w", k, err)
	}
	t.live--
	if err := d.changed(*svc, bpfobj.LbChangeEventCHANGE_DELETE, position); err != nil {
		return err
	}
	next := t.servers[id]
	next.Flags &^= bpfobj.LbServerFlagSERVER_AVAILABLE
	return d.putServer(id, next)
}

// server finds an available server of a service by its address.
func (t *table) server(k model.ServiceKey, addr netip.AddrPort) (uint32, error) {
	id, ok := t.index[serverKey{toKey(k), toAddress(addr.Addr()), swapPort(addr.Port())}]
	if !ok || !available(t.servers[id]) {
		return 0, fmt.Errorf("service %s: server %s: %w", k, addr, model.ErrNoServer)
	}
	return id, nil
}

// place writes a server's id behind the others of the list, in a bigger
// extent if need be. Packets do not see it before the service's count grows.
func (d *Director) place(key bpfobj.LbServiceKey, svc *bpfobj.LbService, id uint32) error {
	t := d.table
	if svc.Count == svc.Capacity {
		if err := d.relist(key, svc, t.order[svc.Id], max(4, 2*svc.Capacity)); err != nil {
			return err
		}
	}
	if err := d.maps.Order.Put(svc.First+svc.Count, id); err != nil {
		return fmt.Errorf("order of servers: %w", err)
	}
	return nil
}

// relist writes a service's list into another extent and changes over by one
// write of the service: a packet, or a command after one that was killed,
// sees the old list or the new one.
func (d *Director) relist(key bpfobj.LbServiceKey, svc *bpfobj.LbService, order []uint32, capacity uint32) error {
	t := d.table
	first, err := t.slots.take(capacity)
	if err != nil {
		return err
	}
	next := *svc
	next.First, next.Capacity, next.Count = first, capacity, uint32(len(order))
	for i, id := range order {
		if err := d.maps.Order.Put(first+uint32(i), id); err != nil {
			t.slots.give(extent{first, capacity})
			return fmt.Errorf("order of servers: %w", err)
		}
	}
	if err := d.putService(key, next); err != nil {
		t.slots.give(extent{first, capacity})
		return err
	}
	t.slots.give(extent{svc.First, svc.Capacity})
	*svc = next
	t.order[svc.Id] = order
	return nil
}

// freeServerID finds an id that no server has and no connection refers to.
// New ids come first, so that a server that comes back finds its own again;
// retired ones are used up when they outnumber the living.
func (d *Director) freeServerID() (uint32, error) {
	t := d.table
	limit := d.maps.Servers.MaxEntries()
	room := uint32(len(t.servers)) < limit
	if !room || len(t.servers)-t.live > t.live+64 {
		if id, err := d.retiredServerID(); err == nil || !room {
			return id, err
		}
	}
	t.servers = append(t.servers, bpfobj.LbServer{})
	return uint32(len(t.servers) - 1), nil
}

// retiredServerID takes the id of a deleted server without connections.
func (d *Director) retiredServerID() (uint32, error) {
	t := d.table
	loads, err := lookupAll[bpfobj.LbLoad](d.maps.Loads, uint32(len(t.servers)))
	if err != nil {
		return 0, fmt.Errorf("read the servers' connections: %w", err)
	}
	for i, s := range t.servers {
		l := loads[i]
		if available(s) || l.Active != 0 || l.Inactive != 0 || l.Persistent != 0 {
			continue
		}
		delete(t.index, keyOf(s))
		return uint32(i), d.forgetServer(uint32(i))
	}
	return 0, fmt.Errorf("%w: %d real servers (imbang attach --max-servers makes room for more)", model.ErrTableFull, len(t.servers))
}

// forgetServer takes a server out of the schedulers' caches, whose entries
// would else name whoever gets its id.
func (d *Director) forgetServer(id uint32) error {
	err := deleteKeys(d.maps.Localities, func(_ bpfobj.LbLocalityKey, l bpfobj.LbLocality) bool {
		return l.Server == id
	})
	if err != nil {
		return err
	}
	return deleteKeys(d.maps.LocalitySets, func(_ bpfobj.LbLocalityKey, set bpfobj.LbLocalitySet) bool {
		return slices.Contains(set.Server[:set.Count], id)
	})
}

// retire marks the server of a deleted service.
func (d *Director) retire(id uint32) error {
	next := d.table.servers[id]
	next.Flags &^= bpfobj.LbServerFlagSERVER_AVAILABLE
	next.Service = noService
	return d.putServer(id, next)
}

// putServer writes a server. Raising or removing its upper threshold, or
// adding it again, opens it for connections (__ip_vs_update_dest).
func (d *Director) putServer(id uint32, next bpfobj.LbServer) error {
	old := d.table.servers[id]
	d.table.servers[id] = next
	if err := d.maps.Servers.Put(id, next); err != nil {
		return fmt.Errorf("server %s: %w", fromServer(next).AddrPort(), err)
	}
	if next.Upper != 0 && next.Upper <= old.Upper {
		return nil
	}
	var l bpfobj.LbLoad
	if err := d.maps.Loads.Lookup(id, &l); err != nil || l.Overloaded == 0 {
		return err
	}
	return d.clearOverload(id)
}
