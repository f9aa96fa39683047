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
// maps. A command that changes one weight, which health checkers run all the time,
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
	order, err := lookupSpan[uint32](l.maps.Order, svc.First, svc.Count)
	if err != nil {
		return listed{}, fmt.Errorf("read the servers' order: %w", err)
	}
	if at, found := l.front(k, addr, order); found {
		return at, nil
	}
	servers, err := readSome[bpfobj.LbServer](l.maps.Servers, order)
	if err != nil {
		return listed{}, fmt.Errorf("read servers: %w", err)
	}
	want, port := toAddress(addr.Addr()), swapPort(addr.Port())
	for i, s := range servers {
		if s.Port == port && s.Addr == want {
			return listed{order[i], uint32(i), s}, nil
		}
	}
	return listed{}, fmt.Errorf("service %s: server %s: %w", k, addr, model.ErrNoServer)
}

// front finds a server of the service by its address and port alone, if it is
// the one that they stand for; that spares to read the others.
func (l lone) front(k model.ServiceKey, addr netip.AddrPort, order []uint32) (at listed, found bool) {
	key := toKey(k)
	place := bpfobj.LbEndpoint{Addr: toAddress(addr.Addr()), Port: swapPort(addr.Port()), Protocol: key.Protocol}
	var f bpfobj.LbReplyOwner
	if l.maps.ReplyOwners.Lookup(place, &f) != nil || l.maps.Servers.Lookup(f.Server, &at.server) != nil {
		return at, false
	}
	i := slices.Index(order, f.Server)
	at.id, at.position = f.Server, uint32(i)
	return at, i >= 0 && keyOf(at.server) == serverKey{key, place.Addr, place.Port}
}

// readSome reads elements of a table in pages: a few each by itself, many with one
// pass over the table up to the last of them.
func readSome[V any](p *paged, at []uint32) ([]V, error) {
	const few = 64
	values := make([]V, len(at))
	if len(at) <= few {
		for i, id := range at {
			if err := p.Lookup(id, &values[i]); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	all, err := lookupAll[V](p, slices.Max(at)+1)
	if err != nil {
		return nil, err
	}
	for i, id := range at {
		values[i] = all[id]
	}
	return values, nil
}
