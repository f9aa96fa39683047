// SPDX-License-Identifier: Apache-2.0

// Package director is the kernel's tables seen as a table of virtual services:
// it loads and pins the data plane, reads the maps, edits them, and attaches
// the programs to devices.
//
// There is one director for each network namespace, as Linux has one IPVS.
// Its programs and maps are pinned, so that it outlives every command; a
// command opens it, edits under a lock, and ends. No other package touches
// BPF. This one does not parse command lines and does not print.
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
	Services    uint32
	Servers     uint32 // of all services together
	Connections uint32 // of each address family
}

// Director is an open handle on the director of one network namespace.
type Director struct {
	dir   string // of pins
	lock  *os.File
	maps  bpfobj.LbMaps
	progs bpfobj.LbPrograms
	// partly: of those only what an edit of one server takes.
	partly bool
	table  *table // nil until an edit needs it; valid while the lock is held

	own map[netip.Addr]bool // its addresses; nil until asked for

	staged   staged
	batching bool
	marked   bool // the kernel's table is marked as being edited
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
	unlock, err := in.lock(false)
	if err != nil {
		return nil, err
	}
	d, err := in.open()
	if err != nil {
		unlock.Close()
		return nil, err
	}
	d.lock = unlock
	return d, nil
}

// OpenOrLoad is Open, but loads a director where there is none.
func OpenOrLoad(sizes Sizes) (*Director, error) { return openOrLoad(sizes, allObjects) }

// OpenForOne is OpenOrLoad for who calls EditServer alone.
func OpenForOne() (*Director, error) { return openOrLoad(Sizes{}, oneServer) }

func openOrLoad(sizes Sizes, want objects) (*Director, error) {
	in, err := reachableInstance()
	if err != nil {
		return nil, err
	}
	unlock, err := in.lock(true)
	if err != nil {
		return nil, err
	}
	d, err := in.openOnly(want)
	if errors.Is(err, ErrNotLoaded) {
		if err = errors.Join(in.sign(unlock), in.load(sizes)); err == nil {
			d, err = in.openOnly(want)
		}
	} else if err == nil && sizes != (Sizes{}) {
		err = d.checkSizes(sizes)
	}
	if err != nil {
		if d != nil {
			d.closeObjects()
		}
		unlock.Close()
		return nil, err
	}
	d.lock = unlock
	return d, nil
}

// Close gives up the handle and its lock; the director stays.
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
	spec = spec.Copy()
	resize(spec, sizes)
	if err := reserve(spec); err != nil {
		return err
	}
	for _, name := range []string{"servers", "order"} { // which commands read in place
		spec.Maps[name].Flags |= mmapable
	}
	withoutXDP(spec)
	objs, err := ebpf.NewCollection(spec)
	if errors.Is(err, unix.ENOMEM) {
		allocate(spec)
		objs, err = ebpf.NewCollection(spec)
	}
	if err != nil {
		return explainLoad(err)
	}
	defer objs.Close()
	hold, err := in.holdBase()
	if err != nil {
		return err
	}
	defer hold.Close()
	if err := in.mount(); err != nil {
		return err
	}
	staging := in.dir() + "-new" // a BPF file system takes no dots
	if err := removePins(staging); err != nil {
		return err
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return fmt.Errorf("pin the data plane: %w", err)
	}
	if err := os.Mkdir(signature(staging), 0o700); err != nil {
		return fmt.Errorf("pin the data plane: %w", err)
	}
	for name, obj := range pinnables(objs) {
		if err := obj.Pin(filepath.Join(staging, name)); err != nil {
			_ = removePins(staging)
			return fmt.Errorf("pin %s: %w", name, err)
		}
	}
	err = errors.Join(initConfig(objs.Maps["config"], objs.Maps["conns4"].MaxEntries()),
		initSecret(objs.Maps["secrets"]), startClocks(objs.Programs["start_clocks"]))
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

// startClocks sets the kernel's timers going, by a program that wants to be
// given a frame. The kernel may have no memory at hand for a timer at one
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
	set(s.Services, "services", "service_states", "service_counters", "service_zeros", "service_rates", "bucket_tables", "maglevs")
	set(s.Servers, "servers", "loads", "server_counters", "server_zeros", "server_rates", "maglev_turns", "fronts")
	// An extent of slots has up to twice the servers it holds, and a growing
	// one is copied.
	set(4*s.Servers, "order")
	set(2*s.Servers, "trees") // a pair of nodes for two slots
	set(s.Connections, "conns4", "reverse4", "conns6", "reverse6")
	// One that ends early leaves an appointment behind for a while.
	set(3*s.Connections, "appointments4", "appointments6")
}

// checkSizes refuses sizes that the loaded director does not have.
func (d *Director) checkSizes(s Sizes) error {
	for _, c := range []struct {
		what string
		want uint32
		m    *ebpf.Map
	}{
		{"services", s.Services, d.maps.Services},
		{"servers", s.Servers, d.maps.Servers},
		{"connections", s.Connections, d.maps.Conns4},
	} {
		if c.want != 0 && c.want != c.m.MaxEntries() {
			return fmt.Errorf("the director has room for %d %s, not %d: sizes are fixed when it is loaded (remove it with imbang detach first)",
				c.m.MaxEntries(), c.what, c.want)
		}
	}
	return nil
}
