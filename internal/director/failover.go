// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
)

// AddressGroups is how many groups of guarded addresses there can be: ADDRESS_GROUPS of
// bpf/types.h.
const AddressGroups = 64

// Failover is what the process that elects a master among directors writes to the data plane
// (bpf/failover.h): leases of virtual addresses, a grace period after an unplanned takeover,
// the peer that packets are handed to after a planned one, and hardware addresses of other
// directors. One process at a time has it, with any number of goroutines. Nothing of it waits
// for the director's lock: a takeover must not wait for an operator's command.
//
// Times are absolute, of CLOCK_BOOTTIME (BootTime): they go on while the machine is suspended,
// and nothing is fresh when it wakes.
type Failover struct {
	in                                                instance
	words, guarded, leases, hands, peers, repliesFrom *ebpf.Map
	changing                                          sync.Mutex // what takes several writes
	working                                           sync.Mutex // FAILOVER_WORKS and what it is about
	// noted is the generation of the table whose servers were noted; odd: of none.
	noted uint64
}

// BootTime is the time by CLOCK_BOOTTIME.
func BootTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

// OpenFailover opens that of the director of the calling thread's network namespace;
// ErrNotLoaded if there is none.
func OpenFailover() (*Failover, error) {
	in, err := reachableInstance()
	if err != nil {
		return nil, err
	}
	f := &Failover{in: in, noted: 1}
	for name, m := range map[string]**ebpf.Map{
		"failover_words": &f.words, "guarded": &f.guarded, "address_leases": &f.leases, "hand_overs": &f.hands,
		"peer_directors": &f.peers, "reply_addresses": &f.repliesFrom,
	} {
		*m, err = ebpf.LoadPinnedMap(filepath.Join(in.dir(), name), nil)
		if errors.Is(err, os.ErrNotExist) {
			if _, missing := os.Stat(in.dir()); missing != nil {
				err = ErrNotLoaded
			} else {
				err = errors.New("the data plane that is loaded cannot take part in a failover: imbang upgrade loads this version's")
			}
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("failover: %w", err)
		}
	}
	return f, nil
}

// Close ends the use of it. What was written stays: leases end by themselves.
func (f *Failover) Close() error {
	var errs []error
	for _, m := range []*ebpf.Map{f.words, f.guarded, f.leases, f.hands, f.peers, f.repliesFrom} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Stale reports whether the director has been removed, or replaced by another one, since:
// then what is written has no effect.
func (f *Failover) Stale() bool {
	now, err := ebpf.LoadPinnedMap(filepath.Join(f.in.dir(), "failover_words"), nil)
	if err != nil {
		return true
	}
	defer now.Close()
	a, err := now.Info()
	b, err2 := f.words.Info()
	if cmp.Or(err, err2) != nil {
		return true
	}
	is, known := a.ID()
	was, known2 := b.ID()
	return !known || !known2 || is != was
}

// put writes a word.
func (f *Failover) put(word bpfobj.LbFailoverWord, value uint64) error {
	if err := f.words.Put(uint32(word), value); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return nil
}

// worksAlways is FAILOVER_WORKS of what has no end.
const worksAlways = math.MaxUint64

// putWork writes a word that packets of unknown connections are subject to, and until when
// they look at such words at all: the latest end of any. The data plane ends that by itself.
func (f *Failover) putWork(word bpfobj.LbFailoverWord, value uint64) error {
	f.working.Lock()
	defer f.working.Unlock()
	until, err := f.worksUntil(word, value)
	if err != nil {
		return err
	}
	// First: a word that has an effect must not be overlooked.
	if err := f.put(bpfobj.LbFailoverWordFAILOVER_WORKS, until); err != nil {
		return err
	}
	return f.put(word, value)
}

// worksUntil is FAILOVER_WORKS if one of the words has this value, and the others stay.
func (f *Failover) worksUntil(word bpfobj.LbFailoverWord, value uint64) (until uint64, err error) {
	for _, w := range []bpfobj.LbFailoverWord{
		bpfobj.LbFailoverWordFAILOVER_GRACE, bpfobj.LbFailoverWordFAILOVER_HAND, bpfobj.LbFailoverWordFAILOVER_PEERS,
	} {
		v := value
		if w != word {
			if err := f.words.Lookup(uint32(w), &v); err != nil {
				return 0, fmt.Errorf("failover: %w", err)
			}
		}
		if w == bpfobj.LbFailoverWordFAILOVER_PEERS && v != 0 {
			v = worksAlways
		}
		until = max(until, v)
	}
	return until, nil
}

// Grace has packets of unknown connections that open none, and servers' replies without a
// connection, dropped until a time; 0 ends it. A packet of a socket of this host passes.
func (f *Failover) Grace(until time.Duration) error {
	if err := f.putWork(bpfobj.LbFailoverWordFAILOVER_GRACE, uint64(max(until, 0))); err != nil || until <= 0 {
		return err
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	return f.noteServers()
}

// Renew has a group's lease end at a time; 0 ends it.
func (f *Failover) Renew(group uint32, until time.Duration) error {
	if err := f.leases.Put(group, uint64(max(until, 0))); err != nil {
		return fmt.Errorf("failover: lease of group %d: %w", group, err)
	}
	return nil
}

// Release ends all of it: for a process that ends, and whose addresses are gone from the
// host. The kernel then answers for whatever addresses it has.
func (f *Failover) Release() error {
	errs := []error{f.Grace(0), f.Peers(), f.endHands(), f.Guard(nil)}
	for group := range uint32(AddressGroups) {
		errs = append(errs, f.Renew(group, 0))
	}
	return errors.Join(errs...)
}

// Guard has the kernel answer ARP and neighbour solicitations for these addresses, on the
// director's devices, and announce them, only while their groups' leases are fresh: as of a
// group number, below AddressGroups. Addresses that were guarded before and are not named are
// not any more. Those that stay are guarded all the time. A group that had no address has no
// lease at first, whatever was renewed before.
func (f *Failover) Guard(groups map[netip.Addr]uint32) error {
	if room := int(f.guarded.MaxEntries()); len(groups) > room {
		return fmt.Errorf("failover: %d addresses: want at most %d", len(groups), room)
	}
	for addr, group := range groups {
		if group >= AddressGroups {
			return fmt.Errorf("failover: address %s: group %d: want at most %d", addr, group, AddressGroups-1)
		}
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	was, err := f.guardedNow()
	if err != nil {
		return err
	}
	// Before the entries: whatever is written when this fails is guarded.
	if len(groups) > 0 {
		if err := f.put(bpfobj.LbFailoverWordFAILOVER_GUARDS, 1); err != nil {
			return err
		}
	}
	if err := f.endUnused(was, groups); err != nil {
		return err
	}
	// Those that go first: they may take the room of those that come.
	for addr := range was {
		if _, stays := groups[addr]; stays {
			continue
		}
		if err := f.guarded.Delete(toAddress(addr)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("failover: guard address %s no more: %w", addr, err)
		}
	}
	for addr, group := range groups {
		if err := f.guarded.Put(toAddress(addr), group); err != nil {
			return fmt.Errorf("failover: guard address %s: %w", addr, err)
		}
	}
	if len(groups) == 0 {
		return f.put(bpfobj.LbFailoverWordFAILOVER_GUARDS, 0)
	}
	return nil
}

// Guarded are the guarded addresses, and when the leases of their groups end or ended; 0: they have
// none.
func (f *Failover) Guarded() (map[netip.Addr]time.Duration, error) {
	groups, err := f.guardedNow()
	if err != nil {
		return nil, err
	}
	until := make(map[netip.Addr]time.Duration, len(groups))
	for addr, group := range groups {
		var end uint64
		if err := f.leases.Lookup(group, &end); err != nil {
			return nil, fmt.Errorf("failover: lease of group %d: %w", group, err)
		}
		until[addr] = time.Duration(end)
	}
	return until, nil
}

func (f *Failover) guardedNow() (map[netip.Addr]uint32, error) {
	keys, err := mapKeys[bpfobj.LbAddress](f.guarded)
	if err != nil {
		return nil, fmt.Errorf("failover: read the guarded addresses: %w", err)
	}
	now := make(map[netip.Addr]uint32, len(keys))
	for _, key := range keys {
		var group uint32
		if err := f.guarded.Lookup(key, &group); err != nil {
			return nil, fmt.Errorf("failover: read the guarded addresses: %w", err)
		}
		now[fromAddress(key)] = group
	}
	return now, nil
}

// endUnused ends the leases of groups that are to have addresses and have none: their
// numbers may have been other groups'.
func (f *Failover) endUnused(was, groups map[netip.Addr]uint32) error {
	var used [AddressGroups]bool
	for _, group := range was {
		used[group%AddressGroups] = true
	}
	for _, group := range groups {
		if used[group] {
			continue
		}
		used[group] = true
		if err := f.Renew(group, 0); err != nil {
			return err
		}
	}
	return nil
}
