// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
)

// A part of the data plane is programs that are loaded when they are wanted for
// the first time: the kernel checks each program for a second or more, and most
// directors never want these.
type part struct {
	programs []string
	stages   string                // the map by which they go on, "" if they do not
	link     func(*Director) error // leads there
}

const xdpStages = "xdp_stages"

var (
	partXDP = part{[]string{"lb_xdp_client", "lb_xdp_server", "lb_xdp_more"}, xdpStages, func(d *Director) error {
		return d.maps.XdpStages.Put(uint32(bpfobj.LbEntryENTRY_MORE), d.progs.LbXdpMore)
	}}
	partExplain = part{programs: []string{"explain"}}
	parts       = []part{partXDP, partExplain}
)

// optional reports whether a program may be missing.
func optional(program string) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return slices.Contains(p.programs, program) })
}

// without leaves a part out of what is to be loaded.
func (p part) without(spec *ebpf.CollectionSpec) {
	for _, name := range p.programs {
		delete(spec.Programs, name)
	}
	if p.stages != "" {
		spec.Maps[p.stages].Contents = nil
	}
}

// withoutParts leaves all of them out.
func withoutParts(spec *ebpf.CollectionSpec) {
	for _, p := range parts {
		p.without(spec)
	}
}

// has reports whether a part is loaded.
func (d *Director) has(p part) bool {
	missing := false
	d.programsOf(p, func(_ string, program **ebpf.Program) { missing = missing || *program == nil })
	return !missing
}

// programsOf calls do with where the director has each program of a part.
func (d *Director) programsOf(p part, do func(name string, program **ebpf.Program)) {
	progs := reflect.ValueOf(&d.progs).Elem()
	for i := range progs.NumField() {
		if name := progs.Type().Field(i).Tag.Get("ebpf"); slices.Contains(p.programs, name) {
			do(name, progs.Field(i).Addr().Interface().(**ebpf.Program))
		}
	}
}

// want loads and pins a part, on the director's tables, unless it is there. The lock
// is not held while the kernel checks the programs, unless the caller holds it.
func (d *Director) want(p part) error {
	if d.has(p) {
		return nil
	}
	if err := d.isOurs(p); err != nil {
		return err
	}
	spec, err := compiled()
	if err != nil {
		return err
	}
	spec = spec.Copy()
	for name := range spec.Programs {
		if !slices.Contains(p.programs, name) {
			delete(spec.Programs, name)
		}
	}
	replaced := map[string]*ebpf.Map{}
	d.maps.Each(func(name string, m **ebpf.Map) {
		spec.Maps[name].MaxEntries, spec.Maps[name].Flags = (*m).MaxEntries(), (*m).Flags()
		spec.Maps[name].Contents = nil
		replaced[name] = *m
	})
	objs, err := loadCollection(spec, replaced)
	if err != nil {
		return err
	}
	defer objs.Close()
	d.programsOf(p, func(name string, program **ebpf.Program) {
		_ = (*program).Close() // if another command was killed when it had pinned some
		*program = objs.Programs[name]
		delete(objs.Programs, name)
	})
	return d.exclusively(func() error { return d.pinPart(p) })
}

// isOurs is an error if the director is of another build: programs of this one
// would not fit its tables.
func (d *Director) isOurs(p part) error {
	if d.dir == "" { // pinned nowhere
		return nil
	}
	if _, err := os.Stat(signature(d.dir)); err != nil {
		return otherVersion(p.programs[0], errors.New("it is not loaded"))
	}
	return nil
}

// pinPart links a part that was loaded, and pins it. Two commands that require it at
// once load it both; what the later one pins stays.
func (d *Director) pinPart(p part) error {
	if err := d.isOurs(p); err != nil { // an upgrade came between
		return err
	}
	var err error
	if p.link != nil {
		err = p.link(d)
	}
	d.programsOf(p, func(name string, program **ebpf.Program) {
		if err != nil || d.dir == "" {
			return
		}
		path := filepath.Join(d.dir, name)
		_ = os.Remove(path) // of an attempt that failed, or of one beside this
		if err = (*program).Pin(path); err != nil {
			err = fmt.Errorf("pin %s: %w", name, err)
		}
	})
	return err
}
