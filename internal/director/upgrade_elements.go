// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"imbang/internal/bpfobj"
	"imbang/internal/director/layout"
)

// Tables of one element are variables, each in a section of its own. In builds of ABI 1
// their parts were maps.

// stateTable is the table of what programs write, of which there is one.
const stateTable = "state"

// formerParts are the parts of tables that were maps in builds of ABI 1, and their types.
var formerParts = map[string][]struct{ path, table, name string }{
	configTable: {{"config.settings", "config", "settings"}, {"config.secret", "secrets", "secret"}, {"config.quarantine", "quarantines", "quarantine"}},
	stateTable:  {{"state.attack", "attacks", "attack"}, {"state.defence", "defences", "defence"}},
}

// element is that of a pinned map of one element: a table, or a part of one.
type element struct {
	m      *ebpf.Map
	layout layout.Layout // with the paths that the table has
	value  []byte
}

func elementOf(m *ebpf.Map, l layout.Layout) (element, error) {
	value, err := m.LookupBytes(uint32(0))
	if err != nil {
		return element{}, fmt.Errorf("read %s: %w", m, err)
	}
	return element{m, l, value}, nil
}

// elements are all parts of a table, whatever the build.
func (g *pinnedBuild) elements(table string) (all []element, err error) {
	if m := g.maps[table]; m != nil {
		types, err := typesOf(m)
		if err != nil {
			return nil, err
		}
		var section *btf.Datasec
		if types.TypeByName(bpfobj.MapName(table), &section) == nil {
			l, err := layout.Of(section)
			if err != nil {
				return nil, err
			}
			e, err := elementOf(m, l)
			return []element{e}, err
		}
	}
	for _, part := range formerParts[table] {
		m := g.maps[part.table]
		if m == nil {
			continue
		}
		l, err := valueLayout(m, part.name)
		if err != nil {
			return nil, err
		}
		e, err := elementOf(m, l.Under(part.path))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// takeOver copies what an earlier build has of the table; what that does not have stays.
func (e *element) takeOver(earlier []element) error {
	for _, from := range earlier {
		c, err := layout.NewConverter(from.layout, e.layout)
		if err != nil {
			return err
		}
		c.Over(e.value, from.value)
	}
	return nil
}

// planParts plans a table whose parts are maps in the earlier build.
func planParts(m MapPlan, cur *pinnedBuild, want *ebpf.MapSpec) (MapPlan, error) {
	to, err := layout.Of(want.Value)
	if err != nil {
		return m, fmt.Errorf("map %s: %w", m.Name, err)
	}
	earlier, err := cur.elements(m.Name)
	if err != nil || len(earlier) == 0 {
		return m, err
	}
	all := element{nil, to, make([]byte, to.Size)}
	if err := all.takeOver(earlier); err != nil {
		return m, fmt.Errorf("map %s: %w", m.Name, err)
	}
	var parts []string
	for _, part := range formerParts[m.Name] {
		parts = append(parts, part.table)
	}
	m.Disposition = Converted
	m.Differences = append(m.Differences, "begins as a copy of "+strings.Join(parts, ", "))
	return m, nil
}

// word is a field of 32 bits.
func (e *element) word(path string) ([]byte, error) {
	for _, f := range e.layout.Fields {
		if f.Path == path && f.Size == 4 {
			return e.value[f.Offset:][:4], nil
		}
	}
	return nil, fmt.Errorf("there is no %s: the data plane is of a build before ABI %d", path, firstABI)
}

func (e *element) get(path string) (bool, error) {
	w, err := e.word(path)
	return err == nil && (w[0]|w[1]|w[2]|w[3]) != 0, err
}

// set changes a word to 1 or 0.
func (e *element) set(path string, on bool) error {
	w, err := e.word(path)
	if err != nil {
		return err
	}
	n := uint32(0)
	if on {
		n = 1
	}
	binary.NativeEndian.PutUint32(w, n)
	return nil
}

// integers writes an array of words.
func (e *element) integers(path string, words []uint32) error {
	for _, f := range e.layout.Fields {
		if f.Path == path && f.Elem == 4 && f.Size == uint32(4*len(words)) {
			for i, w := range words {
				binary.NativeEndian.PutUint32(e.value[f.Offset+uint32(4*i):], w)
			}
			return nil
		}
	}
	return fmt.Errorf("there is no %s of %d words", path, len(words))
}

// clear makes a part 0.
func (e *element) clear(path string) {
	for _, f := range e.layout.Fields {
		if strings.HasPrefix(f.Path, path+".") {
			clear(e.value[f.Offset:][:f.Size])
		}
	}
}

// put writes all of it.
func (e *element) put() error {
	if err := e.m.Put(uint32(0), e.value); err != nil {
		return fmt.Errorf("write %s: %w", e.m, err)
	}
	return nil
}

// The settings by which builds hand over.
const (
	successorSetting = "config.settings.successor"
	adoptingSetting  = "config.settings.adopting"
)

// roomSetting is for how many connections of either family the table has room.
const roomSetting = "config.settings.room"

// settings are what a build has of them.
func (g *pinnedBuild) settings() (*element, error) {
	all, err := g.elements(configTable)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("pinned config is missing")
	}
	return &all[0], nil // they are the first part
}
