// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// A server's address and port say whose answers its packets are, if they serve
// one virtual address and port alone (bpf/replies.h): the server owns those replies.
// Of several with the same address and port, it is the first, until it was
// deleted and has no connections. Servers become owners when they are added.

// mayOwnReplies reports whether a server may be one. A connection by a firewall mark,
// or to any port, does not have the service's address and port.
func mayOwnReplies(s bpfobj.LbServer) bool {
	return model.Forward(s.Forward).RepliesReturn() && s.Owner.Fwmark == 0 && s.Owner.Port != 0 && s.Port != 0
}

func placeAt(s bpfobj.LbServer) bpfobj.LbEndpoint {
	return bpfobj.LbEndpoint{Addr: s.Addr, Port: s.Port, Protocol: s.Owner.Protocol}
}

func ownsReplies(s bpfobj.LbServer) bool { return s.Flags&bpfobj.LbServerFlagSERVER_OWNS_REPLIES != 0 }

// replyOwner finds the server that owns the replies of an address and port.
func (t *table) replyOwner(at bpfobj.LbEndpoint) (id uint32, ok bool) {
	if t.replyOwners != nil {
		id, ok = t.replyOwners[at]
		return id, ok
	}
	for id, s := range t.servers {
		if ownsReplies(s) && placeAt(s) == at {
			return uint32(id), true
		}
	}
	return 0, false
}

// claimReplyOwner makes a server that is to be added the owner of its replies, if it may be.
func (d *Director) claimReplyOwner(id uint32, s *bpfobj.LbServer) error {
	t := d.table
	at := placeAt(*s)
	holder, held := t.replyOwner(at)
	if held && holder == id { // its old connections are found by that
		s.Flags |= bpfobj.LbServerFlagSERVER_OWNS_REPLIES
		return nil
	}
	if !mayOwnReplies(*s) {
		return nil
	}
	if held {
		released, err := d.releaseReplyOwner(holder)
		if !released || err != nil {
			return err
		}
	}
	s.Flags |= bpfobj.LbServerFlagSERVER_OWNS_REPLIES
	if t.replyOwners != nil {
		t.replyOwners[at] = id
	}
	d.staged.owners = append(d.staged.owners, id)
	return nil
}

// releaseReplyOwner makes a server none, if nothing needs it.
func (d *Director) releaseReplyOwner(id uint32) (bool, error) {
	s := &d.table.servers[id]
	if available(*s) {
		return false, nil
	}
	if err := d.settled(id); err != nil {
		return false, err
	}
	var l bpfobj.LbLoad
	if err := d.maps.Loads.Lookup(id, &l); err != nil {
		return false, fmt.Errorf("read the servers' connections: %w", err)
	}
	if !idle(l) {
		return false, nil
	}
	s.Flags &^= bpfobj.LbServerFlagSERVER_OWNS_REPLIES
	d.staged.released = append(d.staged.released, id)
	return true, nil
}

// strikeReplyOwner makes a server none whose id is to be another's.
func (d *Director) strikeReplyOwner(id uint32) {
	s := d.table.servers[id]
	if !ownsReplies(s) {
		return
	}
	at := placeAt(s)
	d.table.servers[id].Flags &^= bpfobj.LbServerFlagSERVER_OWNS_REPLIES
	delete(d.table.replyOwners, at)
	d.staged.struck = append(d.staged.struck, at)
}

// commitReplyOwners writes them so that, whenever that ends, who is marked as one is
// one: connections of others have entries of their own.
func (d *Director) commitReplyOwners(s *staged) error {
	if len(s.owners)+len(s.released)+len(s.struck) == 0 {
		return nil
	}
	// An id that is another's by now stays as it is until all servers are written: what
	// it is to own may be marked as that of one whose id is another's by now, too.
	released := slices.DeleteFunc(s.released, func(id uint32) bool { return s.reused[id] })
	if err := d.putServers(released...); err != nil {
		return err
	}
	if err := d.writing(); err != nil {
		return err
	}
	for _, at := range s.struck {
		if err := d.maps.ReplyOwners.Delete(at); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget a server's address: %w", err)
		}
	}
	return d.putReplyOwners(d.table, s.owners)
}

// putReplyOwners tells the kernel of servers that own the replies of their address and port.
func (d *Director) putReplyOwners(t *table, ids []uint32) error {
	places, owners := make([]bpfobj.LbEndpoint, len(ids)), make([]bpfobj.LbReplyOwner, len(ids))
	for i, id := range ids {
		places[i], owners[i] = placeAt(t.servers[id]), bpfobj.LbReplyOwner{Server: id}
	}
	return putAll("servers' addresses", d.maps.ReplyOwners, places, owners)
}

// repairReplyOwners makes owners of those servers that are marked, after an edit that
// was killed. Of two that are marked for one place, as earlier builds may have left
// them, it is the one that the kernel knows.
func (d *Director) repairReplyOwners(t *table) error {
	missing := map[bpfobj.LbEndpoint]uint32{}
	var others []uint32
	for id, s := range t.servers {
		if !ownsReplies(s) {
			continue
		}
		at, owner := placeAt(s), uint32(id)
		if other, twice := missing[at]; twice {
			var known bpfobj.LbReplyOwner
			if d.maps.ReplyOwners.Lookup(at, &known) == nil && known.Server == other {
				owner, other = other, owner
			}
			t.servers[other].Flags &^= bpfobj.LbServerFlagSERVER_OWNS_REPLIES
			others = append(others, other)
		}
		missing[at] = owner
	}
	if err := d.putServers(others...); err != nil {
		return err
	}
	err := deleteKeys(d.maps.ReplyOwners, func(at bpfobj.LbEndpoint, f bpfobj.LbReplyOwner) bool {
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
	return d.putReplyOwners(t, slices.Collect(maps.Values(missing)))
}
