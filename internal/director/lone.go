// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// places is where edits of a server find it: the whole table, or the kernel's
// maps. A command that changes one weight, which health checkers run for ever,
// does not have to read a hundred thousand servers.
type places interface {
	serviceOf(model.ServiceKey) (bpfobj.LbService, error)
	// serverOf finds an available server of the service.
	serverOf(bpfobj.LbService, model.ServiceKey, netip.AddrPort) (listed, error)
}

// listed is a server with its place in its service's list.
type listed struct {
	id, position uint32
	server       bpfobj.LbServer
}

func (t *table) serviceOf(k model.ServiceKey) (bpfobj.LbService, error) {
	_, svc, err := t.service(k)
	if err != nil {
		return bpfobj.LbService{}, err
	}
	return *svc, nil
}

func (t *table) serverOf(svc bpfobj.LbService, k model.ServiceKey, addr netip.AddrPort) (listed, error) {
	id, err := t.server(k, addr)
	if err != nil {
		return listed{}, err
	}
	return listed{id, uint32(slices.Index(t.order[svc.Id], id)), t.servers[id]}, nil
}

// lone finds a server in the maps.
type lone struct{ *Director }

// loneEdit reports whether an edit may do without the table: it was not read
// yet, no other edit waits, there is nothing to mend, and the maps can be read
// in place, which those of earlier versions cannot.
func (d *Director) loneEdit() (bool, error) {
	if d.table != nil || d.batching || d.maps.Servers.Flags()&d.maps.Order.Flags()&mmapable == 0 {
		return false, nil
	}
	set, err := d.config()
	return err == nil && set.Editing == 0, err
}

func (l lone) serviceOf(k model.ServiceKey) (svc bpfobj.LbService, err error) {
	err = l.maps.Services.Lookup(toKey(k), &svc)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return svc, fmt.Errorf("service %s: %w", k, model.ErrNoService)
	}
	if err != nil {
		return svc, fmt.Errorf("read services: %w", err)
	}
	return svc, nil
}

func (l lone) serverOf(svc bpfobj.LbService, k model.ServiceKey, addr netip.AddrPort) (listed, error) {
	missing := func() error { return fmt.Errorf("service %s: server %s: %w", k, addr, model.ErrNoServer) }
	if svc.Count == 0 {
		return listed{}, missing() // a window of nothing cannot be
	}
	order, err := newWindow[uint32](l.maps.Order, svc.First, svc.Count)
	if err != nil {
		return listed{}, fmt.Errorf("read the servers' order: %w", err)
	}
	defer order.close()
	servers := newPanes[bpfobj.LbServer](l.maps.Servers)
	defer servers.close()
	want, port := toAddress(addr.Addr()), swapPort(addr.Port())
	for i := range svc.Count {
		id := *order.at(int(i))
		s, err := servers.at(id)
		if err != nil {
			return listed{}, fmt.Errorf("read servers: %w", err)
		}
		if s.Port == port && s.Addr == want {
			return listed{id, i, *s}, nil
		}
	}
	return listed{}, missing()
}
