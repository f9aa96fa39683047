// SPDX-License-Identifier: Apache-2.0

// Package director is the kernel's tables seen as a table of virtual services:
// it loads and pins the data plane, reads the maps, edits them, and attaches
// the programs to devices.
//
// There is one director for each network namespace, as Linux has one IPVS.
// Its programs and maps are pinned, so that it outlives every command. A handle
// on it may be open for any time: each edit, or batch of edits, takes the lock
// for itself, and readers take none (generation.go). A handle is for one
// goroutine at a time. No other package touches BPF. This one does not parse
// command lines and does not print.
package director

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
)

// Sizes bounds a director's tables; zero means the default. They are fixed
// when the director is made.
type Sizes struct {
	Services    uint32 `json:"services"`
	Servers     uint32 `json:"servers"`     // of all services together
	Connections uint32 `json:"connections"` // of IPv4; one of IPv6 takes the room of two
}

const (
	// MaxServers is below where the positions of servers end that wrr keeps
	// (bpf/sched/wrr.h).
	MaxServers = 1<<24 - 2
	// MaxServices and MaxConnections keep the sizes of all maps far from where they
	// overflow.
	MaxServices    = 1 << 20
	MaxConnections = 6 << 20
)

// check refuses sizes that tables cannot have.
func (s Sizes) check() error {
	for _, c := range []struct {
		flag     string
		n, limit uint32
	}{
		{"--max-services", s.Services, MaxServices},
		{"--max-servers", s.Servers, MaxServers},
		{"--max-connections", s.Connections, MaxConnections},
	} {
		if c.n > c.limit {
			return fmt.Errorf("%s %d: want at most %d", c.flag, c.n, c.limit)
		}
	}
	return nil
}

// Director is an open handle on the director of one network namespace.
type Director struct {
	dir   string // of pins
	maps  tables
	progs bpfobj.LbPrograms

	lock     *os.File  // whose flock serialises edits
	held     bool      // it is locked, by this handle
	released time.Time // when it was last
	inTurn   bool      // edits let this handle read, see turn.go
	rested   time.Time // when this handle last waited for another's turn until the limit

	table *table // nil until it is needed; valid while the generation is seen
	seen  uint64
	// overtaken: when the last batch took the lock, another process had edited
	// the table just before.
	overtaken bool
	own       map[netip.Addr]bool // the director's addresses; nil until asked for, for each lock anew

	staged   staged
	batching bool
	marked   bool // this handle has made the generation odd
	// interrupt, in tests, comes before each write and ends the edit there, as
	// a kill would.
	interrupt func() error
}

// ErrNotLoaded says that this network namespace has no director.
var ErrNotLoaded = errors.New("no director is loaded in this network namespace (load one with: imbang attach --client-dev DEV --server-dev DEV)")

// Open opens the director of the calling thread's network namespace.
func Open() (*Director, error) {
	in, err := reachableInstance()
	if err != nil {
		return nil, err
	}
	return in.openHandle()
}

// openHandle opens the director without waiting for commands that edit it.
func (in instance) openHandle() (*Director, error) {
	lock, err := in.openLock(false)
	if err != nil {
		return nil, err
	}
	d, err := in.open()
	if err == nil && stillThere(lock) {
		d.lock = lock
		return d, nil
	}
	if err == nil {
		d.closeObjects()
	}
	lock.Close()
	// It is being made or removed: with the lock, it is there or not.
	if lock, err = in.lock(false); err != nil {
		return nil, err
	}
	return in.openLocked(lock)
}

// openLocked opens the director with a lock that is held, and gives the lock up.
func (in instance) openLocked(lock *os.File) (*Director, error) {
	d, err := in.open()
	if err != nil {
		lock.Close()
		return nil, err
	}
	d.lock = lock
	d.release()
	return d, nil
}

// OpenOrLoad is Open, but loads a director where there is none.
func OpenOrLoad(sizes Sizes) (*Director, error) {
	in, err := reachableInstance()
	if err != nil {
		return nil, err
	}
	d, err := in.openHandle()
	if errors.Is(err, ErrNotLoaded) {
		d, err = in.openLoaded(sizes)
	}
	if err != nil {
		return nil, err
	}
	if err := d.checkSizes(sizes); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openLoaded loads the director, unless another process has done that just now,
// and opens it.
func (in instance) openLoaded(sizes Sizes) (*Director, error) {
	return in.openMade(func() error { return in.load(sizes) })
}

// openMade opens the director, which load makes if there is none.
func (in instance) openMade(load func() error) (*Director, error) {
	lock, err := in.lock(true)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(in.dir()); errors.Is(err, os.ErrNotExist) {
		if err := errors.Join(in.sign(lock), load()); err != nil {
			lock.Close()
			return nil, err
		}
	}
	return in.openLocked(lock)
}

// Close gives up the handle; the director stays.
func (d *Director) Close() error {
	d.closeObjects()
	return d.lock.Close()
}

func (d *Director) closeObjects() {
	_ = d.maps.Close() // closing a descriptor loses nothing
	_ = d.progs.Close()
}

// load puts the data plane into the kernel and pins it under the instance's
// directory. It becomes visible at once or not at all.
func (in instance) load(sizes Sizes) error {
	spec, err := compiled()
	if err != nil {
		return err
	}
	return in.loadSpec(spec.Copy(), sizes, func(*ebpf.Collection) error { return nil })
}

// loadSpec is load for another compilation of the same data plane. What is loaded
// is handed to ready before its timers start and before it becomes visible.
func (in instance) loadSpec(spec *ebpf.CollectionSpec, sizes Sizes, ready func(*ebpf.Collection) error) error {
	withoutParts(spec)
	objs, err := newCollection(spec, sizes)
	if err != nil {
		return err
	}
	defer objs.Close()
	if err := ready(objs); err != nil {
		return err
	}
	return in.install(objs, sizes)
}

// newCollection loads the data plane with tables of these sizes.
func newCollection(spec *ebpf.CollectionSpec, sizes Sizes) (*ebpf.Collection, error) {
	if err := sizes.check(); err != nil {
		return nil, err
	}
	resize(spec, sizes)
	return loadCollection(spec, nil)
}

// install pins a loaded data plane whose tables are new, and starts its timers.
func (in instance) install(objs *ebpf.Collection, sizes Sizes) error {
	hold, err := in.holdBase()
	if err != nil {
		return err
	}
	defer hold.Close()
	if err := in.mount(); err != nil {
		return err
	}
	staging := in.dir() + newSuffix
	if err := removePins(staging); err != nil {
		return err
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return fmt.Errorf("pin the data plane: %w", err)
	}
	if err := sign(staging, bpfobj.Fingerprint); err != nil {
		return err
	}
	for name, obj := range pinnables(objs) {
		if err := obj.Pin(filepath.Join(staging, name)); err != nil {
			_ = removePins(staging)
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	config := objs.Maps[bpfobj.MapName(configTable)]
	err = provision(objs.Maps, sizes.Connections)
	if err == nil {
		err = begin(objs.Maps, config)
	}
	if err == nil {
		err = startClocks(objs.Programs["start_clocks"])
	}
	if err != nil {
		_ = removePins(staging)
		return err
	}
	if err := os.Rename(staging, in.dir()); err != nil {
		_ = removePins(staging)
		return fmt.Errorf("pin the data plane: %w", err)
	}
	return nil
}

// begin writes what a new director's configuration is.
func begin(maps map[string]*ebpf.Map, config *ebpf.Map) error {
	room, err := roomOf(maps)
	return errors.Join(err, initConfig(config, room), initSecret(config), initFlowSecret(config))
}

// startClocks makes the first buckets, and starts the kernel's timers, by a program that requires a
// frame as its input. The kernel may have no memory at hand for a timer at one
// moment and have it at the next.
func startClocks(p *ebpf.Program) error {
	var rc uint32
	for range 100 {
		var err error
		if rc, err = p.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
			return fmt.Errorf("start the timers: %w", err)
		}
		if rc == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("start the timers: %w", unix.Errno(-int32(rc)))
}

func resize(spec *ebpf.CollectionSpec, s Sizes) {
	set := func(n uint32, names ...string) {
		for _, name := range names {
			if n != 0 {
				spec.Maps[name].MaxEntries = n
			}
		}
	}
	set(s.Services, "services")
	for _, m := range memories {
		if m.perService {
			set(s.Services, m.name)
		}
	}
	set(s.Servers, "reply_owners", "reply_addresses")
	// An extent of slots has up to twice the servers it holds, and a growing
	// one is copied.
	set((4*s.Servers+pageSlots-1)/pageSlots, "order", "trees")
	for _, p := range pagings {
		switch p.by {
		case byServiceID:
			set(p.pages(s.Services), p.name)
		case byServerID:
			set(p.pages(s.Servers), p.name)
		}
	}
}

// checkSizes refuses sizes that the loaded director does not have.
func (d *Director) checkSizes(s Sizes) error {
	capacity, err := d.capacity()
	if err != nil {
		return err
	}
	if s.Connections <= capacity.Connections { // an upgrade may have given it more room
		s.Connections = 0
	}
	for _, c := range []struct {
		what       string
		want, have uint32
	}{
		{"services", s.Services, capacity.Services},
		{"servers", s.Servers, capacity.Servers},
		{"connections", s.Connections, capacity.Connections},
	} {
		if c.want != 0 && c.want != c.have {
			return fmt.Errorf("the director has room for %d %s, not %d: sizes are fixed when it is loaded (keep its services with ipvsadm -Sn, and remove it with imbang detach first)",
				c.have, c.what, c.want)
		}
	}
	return nil
}
