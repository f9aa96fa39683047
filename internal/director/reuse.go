// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// Reuse keeps the data planes of removed directors for later directors of this
// process: to verify the programs takes the kernel about two seconds of CPU time, to
// empty the tables some milliseconds. Tests and conformance runs make hundreds of
// directors. The zero value is empty and ready; all methods may be called at once.
type Reuse struct {
	mu      sync.Mutex
	idle    map[dataPlaneKind][]*DataPlane
	loading bool          // a data plane is being loaded
	changed chan struct{} // closed when one becomes idle or a load ends; nil if there is no waiter
}

// dataPlaneKind is what a director requires of a data plane.
type dataPlaneKind struct {
	sizes Sizes
	xdp   bool // with the programs of XDP
}

// DataPlane is the programs and tables of one director, which has them until it
// is removed.
type DataPlane struct {
	kind dataPlaneKind
	objs *ebpf.Collection
}

// Open makes the director of the calling thread's network namespace and opens it.
// It is made as OpenOrLoad makes one, except that its data plane may be a used one.
// With xdp the programs of XDP are loaded, as if they had been attached before.
// It is an error if there is a director already.
func (u *Reuse) Open(sizes Sizes, xdp bool) (*Director, *DataPlane, error) {
	p, err := u.get(dataPlaneKind{sizes, xdp}, compiled)
	if err != nil {
		return nil, nil, err
	}
	d, err := p.open()
	if err != nil {
		p.Close()
		return nil, nil, err
	}
	return d, p, nil
}

// Remove removes the director of the calling thread's network namespace, as
// Detach does, and keeps its data plane, which Open returned, for the next. It is
// the caller's no more; on an error it is freed. The director may have been removed
// already.
func (u *Reuse) Remove(p *DataPlane) error {
	err := Detach(true)
	if errors.Is(err, ErrNotLoaded) {
		err = nil
	}
	if err == nil {
		err = p.restore()
	}
	if err != nil {
		p.Close()
		return err
	}
	u.put(p)
	return nil
}

// Close frees what no director has.
func (u *Reuse) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, idle := range u.idle {
		for _, p := range idle {
			p.Close()
		}
	}
	u.idle = nil
}

// get takes an idle data plane, or loads one. One is loaded at a time, for that
// takes a whole CPU; who waits gets one that becomes idle meanwhile.
func (u *Reuse) get(kind dataPlaneKind, compiled func() (*ebpf.CollectionSpec, error)) (*DataPlane, error) {
	u.mu.Lock()
	for u.loading && len(u.idle[kind]) == 0 {
		if u.changed == nil {
			u.changed = make(chan struct{})
		}
		changed := u.changed
		u.mu.Unlock()
		<-changed
		u.mu.Lock()
	}
	if last := len(u.idle[kind]) - 1; last >= 0 {
		p := u.idle[kind][last]
		u.idle[kind] = u.idle[kind][:last]
		u.mu.Unlock()
		return p, nil
	}
	u.loading = true
	u.mu.Unlock()
	defer u.change(func() { u.loading = false })
	spec, err := compiled()
	if err != nil {
		return nil, err
	}
	return newDataPlane(spec.Copy(), kind)
}

// put keeps an idle data plane.
func (u *Reuse) put(p *DataPlane) {
	u.change(func() {
		if u.idle == nil {
			u.idle = map[dataPlaneKind][]*DataPlane{}
		}
		u.idle[p.kind] = append(u.idle[p.kind], p)
	})
}

// change makes a change that some may wait for.
func (u *Reuse) change(fn func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fn()
	if u.changed != nil {
		close(u.changed)
		u.changed = nil
	}
}

// newDataPlane loads one.
func newDataPlane(spec *ebpf.CollectionSpec, kind dataPlaneKind) (*DataPlane, error) {
	if !kind.xdp {
		partXDP.without(spec)
	}
	objs, err := newCollection(spec, kind.sizes)
	if err != nil {
		return nil, err
	}
	return &DataPlane{kind, objs}, nil
}

// open makes it the director of the calling thread's network namespace.
func (p *DataPlane) open() (*Director, error) {
	in, err := currentInstance()
	if err != nil {
		return nil, err
	}
	made := false
	d, err := in.openMade(func() error {
		made = true
		again, err := p.clone()
		if err != nil {
			return err
		}
		defer again.Close()
		return in.install(again, p.kind.sizes)
	})
	if err == nil && !made {
		err = errors.Join(errors.New("this network namespace has a director already"), d.Close())
	}
	return d, err
}

// clone makes other descriptors of the same objects: a descriptor remembers where
// it was pinned.
func (p *DataPlane) clone() (*ebpf.Collection, error) {
	again := &ebpf.Collection{Programs: map[string]*ebpf.Program{}, Maps: map[string]*ebpf.Map{}, Variables: map[string]*ebpf.Variable{}}
	var err error
	for name, m := range p.objs.Maps {
		if again.Maps[name], err = m.Clone(); err != nil {
			again.Close()
			return nil, err
		}
	}
	for name, one := range p.objs.Programs {
		if again.Programs[name], err = one.Clone(); err != nil {
			again.Close()
			return nil, err
		}
	}
	return again, nil
}

// Close frees a data plane. A director that has it keeps it.
func (p *DataPlane) Close() { p.objs.Close() }

// programTables are the maps that the loader fills: the data plane's own stages.
var programTables = map[string]bool{"stages": true, xdpStages: true}

// restore makes every table as the loader makes it. No device may run the programs any
// more.
func (p *DataPlane) restore() error {
	// The timers first: an update frees the timer of an element.
	if err := clearMap(p.objs.Maps["clocks"]); err != nil {
		return err
	}
	// Packets and timers that were under way would write after what follows.
	if err := waitForPackets(p.objs.Maps["barriers"]); err != nil {
		return err
	}
	for name, m := range p.objs.Maps {
		if bpfobj.TableName(name) == "" || connectionTables[bpfobj.TableName(name)] || programTables[name] && (name != xdpStages || p.kind.xdp) {
			continue
		}
		clearTable := clearMap
		if pages := pagingOf(name); pages != nil {
			clearTable = pages.zero
		}
		if err := clearTable(m); err != nil {
			return err
		}
	}
	return empty(p.objs.Maps)
}

// connectionTables are the maps of the connection table, whose pages stay.
var connectionTables = map[string]bool{
	"block_pages": true, "spare_blocks": true, "bucket_blocks": true, "blocks": true, "pages": true, "shape": true,
}

// clearMap makes all elements of an array zero, and deletes those of other maps.
func clearMap(m *ebpf.Map) error {
	var err error
	switch m.Type() {
	case ebpf.Array, ebpf.PerCPUArray:
		err = zeroArray(m)
	case ebpf.ArrayOfMaps, ebpf.ProgramArray:
		for i := range m.MaxEntries() {
			if gone := m.Delete(i); gone != nil && !errors.Is(gone, ebpf.ErrKeyNotExist) {
				err = gone
			}
		}
	default:
		err = deleteAll(m)
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", m, err)
	}
	return nil
}

// zeroArray writes zeros, some elements at a time.
func zeroArray(m *ebpf.Map) error {
	const atOnce = 1 << 12
	each := 1
	if m.Type() == ebpf.PerCPUArray {
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			return err
		}
		each = cpus
	}
	n := int(m.MaxEntries())
	value := reflect.ArrayOf(int(m.ValueSize()), reflect.TypeFor[byte]())
	zeros := reflect.MakeSlice(reflect.SliceOf(value), min(n, atOnce)*each, min(n, atOnce)*each)
	keys := make([]uint32, min(n, atOnce))
	for first := 0; first < n; first += atOnce {
		here := min(atOnce, n-first)
		for i := range here {
			keys[i] = uint32(first + i)
		}
		if _, err := m.BatchUpdate(keys[:here], zeros.Slice(0, here*each).Interface(), nil); err != nil {
			return err
		}
	}
	return nil
}

// deleteAll deletes the elements of a hash or a trie, which is not changed meanwhile.
func deleteAll(m *ebpf.Map) error {
	var all [][]byte
	key, err := m.NextKeyBytes(nil)
	for ; key != nil && err == nil; key, err = m.NextKeyBytes(key) {
		all = append(all, key)
	}
	for _, key := range all {
		err = errors.Join(err, m.Delete(key))
	}
	return err
}
