// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// What follows is for package testrun and for the lab's probes, which load and
// run BPF programs themselves. Other packages have no use for it.

// Resize gives the tables of a compiled data plane, to be loaded by the caller,
// these sizes. It fails without root.
func Resize(spec *ebpf.CollectionSpec, sizes Sizes) error {
	if err := needRoot(); err != nil {
		return err
	}
	resize(spec, sizes)
	return nil
}

// Unpinned is the table of a data plane that the caller loaded for itself. It
// has no lock and no pins; the caller closes the maps and programs, and not the
// Director. Programs that are missing limit what can be done with it: edits
// require table_changed.
func Unpinned(maps bpfobj.Tables, programs bpfobj.LbPrograms) *Director {
	return &Director{maps: maps, progs: programs}
}

// Restart writes the settings of a new director and forgets what was known of
// the tables, after the caller emptied those of an unpinned one.
func (d *Director) Restart() error {
	d.forgetTable()
	return errors.Join(initConfig(d.maps.Config, [2]uint32{}), initFlowSecret(d.maps.Config))
}

// Provision makes the memory of an unpinned director's connection table, which is empty.
func (d *Director) Provision(sizes Sizes) error { return provision(d.mapsByName(), sizes.Connections) }

// Grow makes the memory of the connection table for so many connections of IPv4, as a daemon does while
// the table grows: for measurements without a daemon.
func (d *Director) Grow(connections uint32) error {
	p, err := pagesOf(d.maps.Pages)
	if err != nil {
		return err
	}
	return addPages(d.maps.BlockPages, d.maps.Pages, min(blocksFor(uint64(connections)), p.Bound), 0)
}

// EmptyConnections makes the connection table of an unpinned director as it was when it was made.
func (d *Director) EmptyConnections() error { return empty(d.mapsByName()) }

func (d *Director) mapsByName() map[string]*ebpf.Map {
	all := map[string]*ebpf.Map{}
	d.maps.Each(func(name string, m **ebpf.Map) { all[name] = *m })
	return all
}

// Programs are the loaded programs. They belong to the Director.
func (d *Director) Programs() *bpfobj.LbPrograms { return &d.progs }

// PretendXDP loads the XDP programs and lets them work on devices that they are
// not attached to: for packets that are put into them.
func (d *Director) PretendXDP(clientDev, serverDev string) error {
	return d.pretendXDP(clientDev, serverDev)
}

// Reasons counts the packets that were not forwarded, by verdict and reason.
func (d *Director) Reasons() ([]ReasonCount, error) { return d.reasons() }

// ReadHash reads all elements of a hash map.
func ReadHash[K, V any](m *ebpf.Map) (keys []K, values []V, err error) {
	return hashAll[K, V](m, hashBatch)
}

// ExplainLoad turns the kernel's refusal to load a program into what the kernel
// lacks, if that can be told.
func ExplainLoad(err error) error { return explainLoad(err) }

// ForgetSchedulers empties what schedulers remember, but for service_states.
func ForgetSchedulers(maps *bpfobj.LbMaps) error { return forgetAll(maps) }

// UseVariant makes this process load another compilation of the data plane, with
// the same tables, until restore is called: to measure it. No other goroutine may
// use the director meanwhile.
func UseVariant(load func() (*ebpf.CollectionSpec, error)) (restore func()) {
	product := compiled
	compiled = compilation(load)
	return func() { compiled = product }
}
