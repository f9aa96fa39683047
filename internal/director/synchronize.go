// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// Synchronize applies what a master told of its entries, as ip_vs_proc_conn does. An
// entry that is not there is entered, with its server's forwarding method and without a
// template that controls it. One that is there gets state, activity and Timeout as what it
// has left. If it has another server, an active connection replaces it, and one that is not
// active is ignored; a template keeps its server.
//
// Where Service has no address, service and server are found as ip_vs_find_dest does, by
// Service.Mark, or by protocol and virtual address. For entries of an unknown one errs has
// model.ErrNoService or model.ErrNoServer; else as Insert.
func (d *Director) Synchronize(entries []model.Connection) (errs []error, err error) {
	return d.insert(len(entries), func(in *inserter) error {
		set, err := d.config()
		if err != nil {
			return err
		}
		in.kind = bpfobj.LbRecordKindRECORD_TOLD
		for i := range entries {
			c := entries[i]
			if in.errs[i] = in.resolve(&c); in.errs[i] != nil {
				continue
			}
			c.InPackets = uint16(set.SyncThreshold)
			c.Expires = min(max(c.Timeout, minExpiry), maxExpiry)
			c.Control, c.Hairpin, c.Flags = nil, netip.AddrPort{}, 0
			if err := in.add(i, &c); err != nil {
				return err
			}
		}
		return nil
	})
}

// Replicate applies what another director of this kind told of its entries, in the order
// in which it told: as Insert enters those that are not here, with their templates; those
// that are here become what was told. A connection that has another server is replaced; a
// template that has is set aside, as it was there. Hairpins are not replicated: the flags
// and the address that make one are ignored. errs as Synchronize.
func (d *Director) Replicate(entries []model.Connection) (errs []error, err error) {
	return d.replicate(entries, bpfobj.LbRecordKindRECORD_REPLICA)
}

// Withdraw ends entries that ended where they were told of (Replicate), unless packets
// have come here for them since, or their server is another one: errs is nil for those, too.
func (d *Director) Withdraw(entries []model.Connection) (errs []error, err error) {
	return d.replicate(entries, bpfobj.LbRecordKindRECORD_ENDED)
}

func (d *Director) replicate(entries []model.Connection, kind bpfobj.LbRecordKind) (errs []error, err error) {
	return d.insert(len(entries), func(in *inserter) error {
		in.kind = kind
		for i := range entries {
			c := entries[i]
			forward := c.Forward
			if in.errs[i] = in.resolve(&c); in.errs[i] != nil {
				continue
			}
			if !c.Template {
				c.Forward = forward
			}
			if kind == bpfobj.LbRecordKindRECORD_ENDED {
				c.Control = nil
			}
			c.Hairpin, c.Flags = netip.AddrPort{}, c.Flags&(model.ConnReplied|model.ConnInvalid)
			if err := in.add(i, &c); err != nil {
				return err
			}
		}
		return nil
	})
}

// resolve completes an entry by the service and server that it is of: an error of the
// entry if there are none (ip_vs_find_dest).
func (in *inserter) resolve(c *model.Connection) error {
	key, svc, ok := in.serviceOf(c)
	if !ok {
		return fmt.Errorf("%s %s: %w", c.Protocol.Word(), c.Virtual, model.ErrNoService)
	}
	port := c.Server.Port()
	if key.Mark != 0 && c.Forward != model.Masquerade {
		port = 0
	}
	for _, p := range []uint16{port, port ^ c.Server.Port()} {
		id, ok := in.t.find(serverKey{toKey(key), toAddress(c.Server.Addr()), swapPort(p)})
		if !ok || !available(in.t.servers[id]) {
			continue
		}
		c.Service, c.RealServer = key, netip.AddrPortFrom(c.Server.Addr(), p)
		c.Forward = model.Forward(in.t.servers[id].Forward)
		if c.Template && c.Engine == "" && svc.Engine != 0 {
			return bad("a template of %s without a call", key)
		}
		return nil
	}
	return fmt.Errorf("service %s: server %s: %w", key, c.Server, model.ErrNoServer)
}

// serviceOf finds the service of an entry (ip_vs_service_find).
func (in *inserter) serviceOf(c *model.Connection) (model.ServiceKey, *bpfobj.LbService, bool) {
	if c.Service.Addr.IsValid() {
		svc := in.t.services[toKey(c.Service)]
		return c.Service, svc, svc != nil
	}
	family := model.FamilyOf(c.Virtual.Addr())
	var keys []model.ServiceKey
	if c.Service.Mark != 0 {
		keys = append(keys, model.MarkKey(c.Service.Mark, family))
	}
	if c.Protocol != 0 {
		addr, port := c.Virtual.Addr(), c.Virtual.Port()
		keys = append(keys, model.AddrKey(c.Protocol, c.Virtual))
		if c.Protocol == model.TCP && (port == ftpPort || port >= 1024) {
			keys = append(keys, model.AddrKey(c.Protocol, netip.AddrPortFrom(addr, ftpPort)))
		}
		keys = append(keys, model.AddrKey(c.Protocol, netip.AddrPortFrom(addr, 0)))
	}
	for _, key := range keys {
		if svc := in.t.services[toKey(key)]; svc != nil {
			return key, svc, true
		}
	}
	return model.ServiceKey{}, nil, false
}
