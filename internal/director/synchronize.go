// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
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
// Service.Mark, or by protocol and virtual address. An entry of an unknown one is entered as
// if its server had been deleted: it is used when the server is added. Unlike Linux packets
// are not forwarded before, as a forged message could name any address. For such entries,
// and those that there is no room for, errs has model.ErrNoService or model.ErrNoServer;
// else as Insert.
func (d *Director) Synchronize(entries []model.Connection) (errs []error, err error) {
	missing := map[int]error{} // of what was entered nevertheless
	errs, err = d.insert(len(entries), func(in *inserter) error {
		set, err := d.config()
		if err != nil {
			return err
		}
		in.kind = bpfobj.LbRecordKindRECORD_TOLD
		remembered := false
		for i := range entries {
			c := entries[i]
			c.InPackets = uint16(set.SyncThreshold)
			c.Expires = min(max(c.Timeout, minExpiry), maxExpiry)
			c.Control, c.Hairpin, c.Flags = nil, netip.AddrPort{}, 0
			if in.errs[i] = in.resolve(&c); in.errs[i] != nil {
				if !remembered {
					if err := in.remember(entries[i:]); err != nil {
						return err
					}
					remembered = true
				}
				server, ok := in.unbound(&c)
				if _, known := in.t.find(keyOf(server)); !ok || !known {
					continue
				}
				missing[i] = in.errs[i]
			}
			if err := in.add(i, &c); err != nil {
				return err
			}
		}
		return nil
	})
	for i, cause := range missing {
		if errs[i] == nil {
			errs[i] = cause
		}
	}
	return errs, err
}

// Replicate applies what another director of this kind told of its entries, in the order
// in which it told: as Insert enters those that are not here, with their templates; those
// that are here become what was told. A connection that has another server is replaced; a
// template that has is set aside, as it was there. An entry for which packets came here after
// the last one that is told of (Idle) stays as it is. Hairpins are not replicated: the flags
// and the address that make one are ignored. errs as Synchronize.
func (d *Director) Replicate(entries []model.Connection) (errs []error, err error) {
	kind := func(*model.Connection) bpfobj.LbRecordKind { return bpfobj.LbRecordKindRECORD_REPLICA }
	errs, _, err = d.replicate(entries, kind, nil)
	return errs, err
}

// Withdraw ends entries that ended where they were told of (Replicate), unless packets
// came for them here after the last one there (Idle), or their server is another one: errs is
// nil for those, too. ended: of each entry whether it ended.
func (d *Director) Withdraw(entries []model.Connection) (errs []error, ended []bool, err error) {
	errs, m, err := d.replicate(entries, ends, nil)
	return errs, m.Took, err
}

// Sweep withdraws entries. ended is how many of them ended.
func (d *Director) Sweep(entries []model.Connection) (ended int, err error) {
	_, _, err = d.replicate(entries, ends, &ended)
	return ended, err
}

// Conflicts are entries that both directors of a pair have with another server.
type Conflicts struct {
	Kept     int // those of this director stayed
	Replaced int // those of the other one took their place, though packets came here
}

// Merged is what became of entries that the other director of a pair told of.
type Merged struct {
	Conflicts
	Took []bool // of each entry whether the table has it as it was told: the one here was not newer
}

// Merge is Replicate of directors of a pair, to each of which packets may come. An entry that has
// another server here stays, unless no packet came for it here or the last one there is later
// by more than 250 ms: where packets came at about the same time, each director keeps its own. One
// of the same server does not go back to an earlier state then.
// An entry with the flag ConnReplica is entered if there is none of its flow, and
// changes nothing otherwise. known: the entries were here before, so that one which is not here
// has ended, and is not entered; errs is nil for it.
func (d *Director) Merge(entries []model.Connection, known bool) (errs []error, m Merged, err error) {
	kind := func(c *model.Connection) bpfobj.LbRecordKind {
		if c.Flags&model.ConnReplica != 0 {
			return bpfobj.LbRecordKindRECORD_COPY
		}
		return bpfobj.LbRecordKindRECORD_SHARED
	}
	return d.replicateKnown(entries, kind, nil, known)
}

// Replicated reports whether the table has had all that the other director of a pair has
// (SetReplicated). A new director's has not.
func (d *Director) Replicated() (bool, error) {
	set, err := d.config()
	return set.Replicated != 0, err
}

// SetReplicated notes that, or that it is not so any more. It stays with the table.
func (d *Director) SetReplicated(all bool) error {
	return d.changeConfig(func(set *bpfobj.LbSettings) {
		set.Replicated = 0
		if all {
			set.Replicated = 1
		}
	})
}

// ends is the kind of records of entries that end.
func ends(*model.Connection) bpfobj.LbRecordKind { return bpfobj.LbRecordKindRECORD_ENDED }

// replicate has the kernel apply records; updated counts what has changed, if it is not nil.
func (d *Director) replicate(entries []model.Connection, kind func(*model.Connection) bpfobj.LbRecordKind, updated *int) (errs []error, m Merged, err error) {
	return d.replicateKnown(entries, kind, updated, false)
}

// replicateKnown enters nothing that is not here if known.
func (d *Director) replicateKnown(entries []model.Connection, kind func(*model.Connection) bpfobj.LbRecordKind, updated *int, known bool) (errs []error, m Merged, err error) {
	errs, err = d.insert(len(entries), func(in *inserter) error {
		m.Took = make([]bool, len(entries))
		in.updated, in.merged, in.took, in.known = updated, &m, m.Took, known
		for i := range entries {
			c := entries[i]
			in.kind = kind(&entries[i])
			forward := c.Forward
			c.Expires = min(c.Expires, maxExpiry) // copies live longer than their entries
			if in.errs[i] = in.resolve(&c); in.errs[i] != nil {
				continue
			}
			if !c.Template {
				c.Forward = forward
			}
			if in.kind == bpfobj.LbRecordKindRECORD_ENDED {
				c.Control = nil
			}
			c.Hairpin, c.Flags = netip.AddrPort{}, c.Flags&(model.ConnReplied|model.ConnInvalid)
			if err := in.add(i, &c); err != nil {
				return err
			}
		}
		return nil
	})
	return errs, m, err
}

// resolve completes an entry by the service and server that it is of: an error of the
// entry if there are none (ip_vs_find_dest).
func (in *inserter) resolve(c *model.Connection) error {
	ended := in.kind == bpfobj.LbRecordKindRECORD_ENDED // its server may have been deleted
	key, ok := in.serviceOf(c)
	if !ok && !ended {
		return fmt.Errorf("service %s: %w", key, model.ErrNoService)
	}
	port := c.Server.Port()
	if key.Mark != 0 && c.Forward != model.Masquerade {
		port = 0
	}
	for _, p := range []uint16{port, port ^ c.Server.Port()} {
		id, ok := in.t.find(serverKey{toKey(key), toAddress(c.Server.Addr()), swapPort(p)})
		if ok && (ended || available(in.t.servers[id])) {
			c.Service, c.RealServer = key, netip.AddrPortFrom(c.Server.Addr(), p)
			c.Forward = model.Forward(in.t.servers[id].Forward)
			return nil
		}
	}
	return fmt.Errorf("service %s: server %s: %w", key, c.Server, model.ErrNoServer)
}

// mostUnbound is how many servers that are not in the table may have connections for
// Synchronize to remember another one.
const mostUnbound = 1024

// unbound completes an entry of a server that is not in the table, by the server that it
// would have; that server as the director's table has it. ok: there can be one.
func (in *inserter) unbound(c *model.Connection) (server bpfobj.LbServer, ok bool) {
	key, _ := in.serviceOf(c)
	addr, port := c.Server.Addr(), c.Server.Port()
	if key.Port == 0 { // of every port, or of a mark: as such servers are usually added
		port = 0
	}
	for _, p := range []uint16{port, c.Server.Port()} {
		if _, ok := in.t.find(serverKey{toKey(key), toAddress(addr), swapPort(p)}); ok {
			port = p
			break
		}
	}
	c.Service, c.RealServer = key, netip.AddrPortFrom(addr, port)
	if checkEntry(c, in.kind) != nil || singleHost(c.Server.Addr()) != nil {
		return server, false
	}
	server = bpfobj.LbServer{Owner: toKey(key), Service: noService}
	toServer(model.Server{Addr: addr, Port: port, Forward: c.Forward}, &server)
	return server, true
}

// remember makes servers known that entries have and the table has not, as if they had been
// deleted.
func (in *inserter) remember(entries []model.Connection) error {
	// Their servers are known by the connections that they have: those come first.
	if err := in.flush(); err != nil {
		return err
	}
	return in.d.editNow(func(t *table) error {
		// Before the new ones are there, which have no connections yet either.
		if err := in.d.scanRetired(); err != nil {
			return err
		}
		n := -len(t.spare)
		for _, s := range t.servers {
			if !available(s) && !never(s) {
				n++
			}
		}
		var ids []uint32
		for i := range entries {
			c := entries[i]
			if n+len(ids) >= mostUnbound {
				break
			}
			if in.resolve(&c) == nil {
				continue
			}
			want, ok := in.unbound(&c)
			if !ok {
				continue
			}
			if _, known := t.find(keyOf(want)); known {
				continue
			}
			id, err := in.d.freeServerID()
			if errors.Is(err, model.ErrTableFull) {
				break
			}
			if err != nil {
				return err
			}
			want.Retired = t.quarantine.barriers
			t.servers[id] = want
			t.enter(id)
			ids = append(ids, id)
		}
		t.spare = append(t.spare, ids...)
		if err := in.d.addPages(nil, ids, nil); err != nil {
			return err
		}
		return in.d.putServers(ids...)
	})
}

// serviceOf finds the service of an entry (ip_vs_service_find); the one that it would have,
// if there is none.
func (in *inserter) serviceOf(c *model.Connection) (model.ServiceKey, bool) {
	if c.Service.Addr.IsValid() {
		return c.Service, in.t.services[toKey(c.Service)] != nil
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
		if in.t.services[toKey(key)] != nil {
			return key, true
		}
	}
	if len(keys) == 0 {
		return model.ServiceKey{Family: family}, false
	}
	return keys[0], false
}
