// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// AddressGroups is how many groups of guarded addresses there can be: ADDRESS_GROUPS of
// bpf/types.h.
const AddressGroups = 64

// Failover is what the process that elects a master among directors writes to the data plane:
// a grace period after a takeover, and leases of virtual addresses (bpf/failover.h). One
// process at a time has it. Nothing of it waits for the director's lock: a takeover must not
// wait for an operator's command.
type Failover struct {
	in                        instance
	failover, guarded, leases *ebpf.Map
}

// OpenFailover opens that of the director of the calling thread's network namespace;
// ErrNotLoaded if there is none.
func OpenFailover() (*Failover, error) {
	in, err := reachableInstance()
	if err != nil {
		return nil, err
	}
	f := &Failover{in: in}
	for name, m := range map[string]**ebpf.Map{"failover": &f.failover, "guarded": &f.guarded, "address_leases": &f.leases} {
		*m, err = ebpf.LoadPinnedMap(filepath.Join(in.dir(), name), nil)
		if errors.Is(err, os.ErrNotExist) {
			if _, missing := os.Stat(in.dir()); missing != nil {
				err = ErrNotLoaded
			} else {
				err = errors.New("the data plane that is loaded has no leases of addresses: imbang upgrade loads this version's")
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
	for _, m := range []*ebpf.Map{f.failover, f.guarded, f.leases} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Stale reports whether the director has been removed, or replaced by another one, since:
// then what is written has no effect.
func (f *Failover) Stale() bool {
	now, err := ebpf.LoadPinnedMap(filepath.Join(f.in.dir(), "failover"), nil)
	if err != nil {
		return true
	}
	defer now.Close()
	a, err := now.Info()
	b, err2 := f.failover.Info()
	if cmp.Or(err, err2) != nil {
		return true
	}
	is, known := a.ID()
	was, known2 := b.ID()
	return !known || !known2 || is != was
}

// Grace begins a grace period; 0 ends it. Packets of unknown connections that open none, and
// servers' replies without a connection, are dropped in it.
func (f *Failover) Grace(period time.Duration) error {
	return f.change(func(v *bpfobj.LbFailoverState, now uint64) {
		v.GraceUntil = 0
		if period > 0 {
			v.GraceUntil = now + uint64(period)
		}
	})
}

func (f *Failover) change(edit func(v *bpfobj.LbFailoverState, now uint64)) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	var v bpfobj.LbFailoverState
	if err := f.failover.Lookup(uint32(0), &v); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	edit(&v, now)
	if err := f.failover.Put(uint32(0), &v); err != nil {
		return fmt.Errorf("failover: %w", err)
	}
	return nil
}

// Guard has the kernel answer ARP and neighbour solicitations for these addresses, on the
// director's devices, only while their groups' leases are fresh: as of a group number, below
// AddressGroups. Addresses that were guarded before and are not named are not any more. Those
// that stay are guarded all the time.
func (f *Failover) Guard(groups map[netip.Addr]uint32) error {
	for addr, group := range groups {
		if group >= AddressGroups {
			return fmt.Errorf("failover: address %s: group %d: want at most %d", addr, group, AddressGroups-1)
		}
	}
	for addr, group := range groups {
		if err := f.guarded.Put(toAddress(addr), group); err != nil {
			return fmt.Errorf("failover: guard address %s: %w", addr, err)
		}
	}
	keys, err := mapKeys[bpfobj.LbAddress](f.guarded)
	if err != nil {
		return fmt.Errorf("failover: read the guarded addresses: %w", err)
	}
	for _, key := range keys {
		addr := fromAddress(key)
		if _, stays := groups[addr]; stays {
			continue
		}
		if err := f.guarded.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("failover: guard address %s no more: %w", addr, err)
		}
	}
	return f.change(func(v *bpfobj.LbFailoverState, _ uint64) { v.Guards = uint32(min(len(groups), 1)) })
}

// Renew has a group's lease end after a time from now; 0 ends it.
func (f *Failover) Renew(group uint32, lease time.Duration) error {
	now, err := monotonic()
	if err != nil {
		return err
	}
	until := uint64(0)
	if lease > 0 {
		until = now + uint64(lease)
	}
	if err := f.leases.Put(group, until); err != nil {
		return fmt.Errorf("failover: lease of group %d: %w", group, err)
	}
	return nil
}
