// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// LinkAddress is a hardware address on the link that a device leads to.
type LinkAddress struct {
	Index int // of the device
	MAC   net.HardwareAddr
}

// check refuses what can be no other director's address.
func (l LinkAddress) check() error {
	if l.Index <= 0 {
		return fmt.Errorf("failover: device index %d: want that of a device", l.Index)
	}
	if len(l.MAC) != 6 || l.MAC[0]&1 != 0 || [6]byte(l.MAC) == [6]byte{} {
		return fmt.Errorf("failover: hardware address %q: want one of a single Ethernet device, such as 02:00:00:00:00:01", l.MAC)
	}
	return nil
}

// Hand has packets of unknown connections that open none, and servers' replies without a
// connection, that came in by a device sent on by it to the director that had the addresses
// before, until a time; 0 ends it for the device. What that director sent is not sent back, and
// what is of a socket of this host passes. It comes before a grace period. A packet has a hop
// less then, and is dropped if it has none left. Called again, it also notes servers that were
// added.
func (f *Failover) Hand(to LinkAddress, until time.Duration) error {
	if until <= 0 {
		return f.endHand(to.Index)
	}
	if err := to.check(); err != nil {
		return err
	}
	now, err := BootTime()
	if err != nil {
		return err
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	// Devices that are gone have other indices when they come back: theirs would fill the map.
	if err := deleteKeys(f.hands, func(_ uint32, h bpfobj.LbHandOver) bool { return h.Until <= uint64(now) }); err != nil {
		return fmt.Errorf("failover: end hand-overs: %w", err)
	}
	h := bpfobj.LbHandOver{Until: uint64(until), Mac: [6]uint8(to.MAC)}
	if err := f.hands.Put(uint32(to.Index), h); err != nil {
		return fmt.Errorf("failover: hand over to %s: %w", to.MAC, err)
	}
	if err := f.handUntil(); err != nil {
		return err
	}
	return f.noteServers()
}

// handUntil writes when the last device's hand-over ends.
func (f *Failover) handUntil() error {
	var last uint64
	var index uint32
	var h bpfobj.LbHandOver
	it := f.hands.Iterate()
	for it.Next(&index, &h) {
		last = max(last, h.Until)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("failover: read what is handed over: %w", err)
	}
	return f.putWork(bpfobj.LbFailoverWordFAILOVER_HAND, last)
}

func (f *Failover) endHand(index int) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	if err := f.hands.Delete(uint32(index)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("failover: end a hand-over: %w", err)
	}
	return f.handUntil()
}

func (f *Failover) endHands() error {
	keys, err := mapKeys[uint32](f.hands)
	errs := []error{err}
	for _, index := range keys {
		errs = append(errs, f.endHand(int(index)))
	}
	return errors.Join(errs...)
}

// Peers says which other directors there are, by their hardware addresses on this director's
// devices; without any there is none any more. A packet for a service that one of them sent,
// and that is of no connection here, is passed to the stack and not scheduled again: this host
// is the server that was chosen.
func (f *Failover) Peers(all ...LinkAddress) error {
	wanted := make(map[bpfobj.LbLinkAddress]bool, len(all))
	for _, l := range all {
		if err := l.check(); err != nil {
			return err
		}
		wanted[bpfobj.LbLinkAddress{Ifindex: uint32(l.Index), Mac: [6]uint8(l.MAC)}] = true
	}
	if room := int(f.peers.MaxEntries()); len(wanted) > room {
		return fmt.Errorf("failover: %d hardware addresses of other directors: want at most %d", len(wanted), room)
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	if err := deleteKeys(f.peers, func(l bpfobj.LbLinkAddress, _ uint32) bool { return !wanted[l] }); err != nil {
		return fmt.Errorf("failover: other directors: %w", err)
	}
	for l := range wanted {
		if err := f.peers.Put(l, uint32(1)); err != nil {
			return fmt.Errorf("failover: director %s: %w", net.HardwareAddr(l.Mac[:]), err)
		}
	}
	return f.putWork(bpfobj.LbFailoverWordFAILOVER_PEERS, uint64(min(len(wanted), 1)))
}

// noteServers writes the addresses of servers whose replies may come from other ports than
// the one that is listed, or that no service owns (mayOwnReplies): packets that came from
// them may be replies. It reads what commands write, and takes no lock: a server that an edit
// is just writing may be missed, and has no connections yet. It does nothing if they were noted
// of the table that there is: a takeover begins several periods at once. f.changing is held.
func (f *Failover) noteServers() error {
	dir := f.in.dir()
	config, err := ebpf.LoadPinnedMap(filepath.Join(dir, configTable), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	defer config.Close()
	c, err := readConfig(config)
	if err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	set := c.Settings
	if f.noted == set.Generation {
		return nil
	}
	servers, err := ebpf.LoadPinnedMap(filepath.Join(dir, "servers"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	defer servers.Close()
	pages := &paged{paging: pagingOf("servers"), outer: servers}
	defer pages.closePages()
	wanted := map[bpfobj.LbAddress]bool{}
	all, err := lookupAll[bpfobj.LbServer](pages, set.Servers)
	if err != nil {
		return fmt.Errorf("failover: read the servers: %w", err)
	}
	for i := range all {
		if s := &all[i]; available(*s) && repliesFromAnyPort(*s) {
			wanted[s.Addr] = true
		}
	}
	there, err := mapKeys[bpfobj.LbAddress](f.repliesFrom)
	if err != nil {
		return fmt.Errorf("failover: read servers' addresses: %w", err)
	}
	for _, a := range there {
		if wanted[a] {
			delete(wanted, a)
			continue
		}
		if err := f.repliesFrom.Delete(a); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("failover: server %s: %w", fromAddress(a), err)
		}
	}
	for a := range wanted {
		if err := f.repliesFrom.Put(a, uint32(1)); err != nil {
			return fmt.Errorf("failover: server %s: %w", fromAddress(a), err)
		}
	}
	if !beingEdited(set.Generation) {
		f.noted = set.Generation
	}
	return nil
}

// repliesFromAnyPort: as those of every port and of marks do, and FTP's of data connections.
func repliesFromAnyPort(s bpfobj.LbServer) bool {
	return model.Forward(s.Forward).RepliesReturn() && (!mayOwnReplies(s) || swapPort(s.Owner.Port) == ftpPort)
}
