// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"

	"imbang/internal/bpfobj"
	"imbang/internal/host"
	"imbang/internal/model"
)

// source is the address that packets of the director's own have to a server:
// of a tunnel, and with the setting hairpin of masqueraded clients. Others
// need none, and looking for it takes time. To the director itself it is the
// server's own, and says so to the data plane.
func (d *Director) source(s model.Server) (bpfobj.LbAddress, error) {
	own, err := d.isOwn(s.Addr)
	if err != nil {
		return bpfobj.LbAddress{}, err
	}
	if own {
		return toAddress(s.Addr), nil
	}
	if s.Forward.Hairpins() {
		set, err := d.config()
		if err != nil || set.Hairpin == 0 {
			return bpfobj.LbAddress{}, err
		}
	}
	return sourceOf(s), nil
}

// isOwn reports whether an address is one of this network namespace's devices.
func (d *Director) isOwn(a netip.Addr) (bool, error) {
	if d.own == nil {
		all, err := host.OwnAddresses()
		if err != nil {
			return false, fmt.Errorf("the director's own addresses: %w", err)
		}
		d.own = map[netip.Addr]bool{}
		for _, a := range all {
			d.own[a] = true
		}
	}
	return d.own[a], nil
}

// sourceOf is the address that the kernel would send from to a server. Without
// a route there is none yet, and the data plane drops what it would send; any
// later change of the server looks again.
func sourceOf(s model.Server) bpfobj.LbAddress {
	if !s.Forward.Encapsulates() && !s.Forward.Hairpins() {
		return bpfobj.LbAddress{}
	}
	local, err := host.Source(s.Addr)
	if err != nil {
		return bpfobj.LbAddress{}
	}
	return toAddress(local)
}

// findSources looks for the addresses to all servers.
func (d *Director) findSources() error {
	return d.editNow(func(t *table) error {
		ids := make([]uint32, len(t.servers))
		for id := range t.servers {
			ids[id] = uint32(id)
			s := fromServer(t.servers[id])
			if own, err := d.isOwn(s.Addr); err != nil {
				return err
			} else if !own {
				t.servers[id].Source = sourceOf(s)
			}
		}
		return d.putServers(ids...)
	})
}
