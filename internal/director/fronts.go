// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// A server's address and port say whose answers its packets are, if they serve
// one virtual address and port alone (bpf/answers.h): the server is their front.
// Of several with the same address and port, it is the first, until it was
// deleted and has no connections. Servers become fronts when they are added.

// mayFront reports whether a server may be one. A connection by a firewall mark,
// or to any port, does not have the service's address and port.
func mayFront(s bpfobj.LbServer) bool {
	return s.Forward == bpfobj.LbForwardFORWARD_MASQ && s.Owner.Fwmark == 0 && s.Owner.Port != 0 && s.Port != 0
}

func placeAt(s bpfobj.LbServer) bpfobj.LbEndpoint {
	return bpfobj.LbEndpoint{Addr: s.Addr, Port: s.Port, Protocol: s.Owner.Protocol}
}

func isFront(s bpfobj.LbServer) bool { return s.Flags&bpfobj.LbServerFlagSERVER_FRONTS != 0 }

// front finds who is one.
func (t *table) front(at bpfobj.LbEndpoint) (id uint32, ok bool) {
	if t.fronts != nil {
		id, ok = t.fronts[at]
		return id, ok
	}
	for id, s := range t.servers {
		if isFront(s) && placeAt(s) == at {
			return uint32(id), true
		}
	}
	return 0, false
}

// claimFront makes a server that is to be added a front, if it may be one.
func (d *Director) claimFront(id uint32, s *bpfobj.LbServer) error {
	t := d.table
	at := placeAt(*s)
	holder, held := t.front(at)
	if held && holder == id { // its old connections are found by that
		s.Flags |= bpfobj.LbServerFlagSERVER_FRONTS
		return nil
	}
	if !mayFront(*s) {
		return nil
	}
	if held {
		released, err := d.releaseFront(holder)
		if !released || err != nil {
			return err
		}
	}
	s.Flags |= bpfobj.LbServerFlagSERVER_FRONTS
	if t.fronts != nil {
		t.fronts[at] = id
	}
	d.staged.fronts = append(d.staged.fronts, id)
	return nil
}

// releaseFront makes a server none, if nothing needs it.
func (d *Director) releaseFront(id uint32) (bool, error) {
	s := &d.table.servers[id]
	if available(*s) {
		return false, nil
	}
	var l bpfobj.LbLoad
	if err := d.maps.Loads.Lookup(id, &l); err != nil {
		return false, fmt.Errorf("read the servers' connections: %w", err)
	}
	if !idle(l) {
		return false, nil
	}
	s.Flags &^= bpfobj.LbServerFlagSERVER_FRONTS
	d.staged.released = append(d.staged.released, id)
	return true, nil
}

// strikeFront makes a server none whose id is to be another's.
func (d *Director) strikeFront(id uint32) {
	s := d.table.servers[id]
	if !isFront(s) {
		return
	}
	at := placeAt(s)
	d.table.servers[id].Flags &^= bpfobj.LbServerFlagSERVER_FRONTS
	delete(d.table.fronts, at)
	d.staged.struck = append(d.staged.struck, at)
}

// commitFronts writes them so that, whenever that ends, who is marked as one is
// one: connections of others have entries of their own.
func (d *Director) commitFronts(s *staged) error {
	if len(s.fronts)+len(s.released)+len(s.struck) == 0 {
		return nil
	}
	if err := d.putServers(s.released...); err != nil {
		return err
	}
	if err := d.writing(); err != nil {
		return err
	}
	for _, at := range s.struck {
		if err := d.maps.Fronts.Delete(at); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget a server's address: %w", err)
		}
	}
	return d.putFronts(d.table, s.fronts)
}

// putFronts tells the kernel of servers that are fronts.
func (d *Director) putFronts(t *table, ids []uint32) error {
	places, fronts := make([]bpfobj.LbEndpoint, len(ids)), make([]bpfobj.LbFront, len(ids))
	for i, id := range ids {
		places[i], fronts[i] = placeAt(t.servers[id]), bpfobj.LbFront{Server: id}
	}
	return putAll("servers' addresses", d.maps.Fronts, places, fronts)
}

// mendFronts makes the fronts those servers that are marked, after an edit that
// was killed.
func (d *Director) mendFronts(t *table) error {
	missing := map[bpfobj.LbEndpoint]uint32{}
	for id, s := range t.servers {
		if isFront(s) {
			missing[placeAt(s)] = uint32(id)
		}
	}
	err := deleteKeys(d.maps.Fronts, func(at bpfobj.LbEndpoint, f bpfobj.LbFront) bool {
		id, wanted := missing[at]
		if !wanted || id != f.Server {
			return true
		}
		delete(missing, at)
		return false
	})
	if err != nil {
		return err
	}
	return d.putFronts(t, slices.Collect(maps.Values(missing)))
}
