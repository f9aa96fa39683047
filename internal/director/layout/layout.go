// SPDX-License-Identifier: Apache-2.0

// Package layout compares the values of BPF maps by their BTF types, and
// converts a value of one build of the data plane to that of another. It is
// pure: it knows neither maps nor the kernel.
package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Layout is a type as its fields lie in memory. Nested structs are flattened.
type Layout struct {
	Size   uint32 // [bytes]
	Fields []Field
}

// Field is an integer, an enumeration, an array of integers, or something that
// is copied whole or not at all.
type Field struct {
	Path   string // names joined by dots; elements of arrays of structs are a[0], a[1], ...
	Offset uint32 // [bytes]
	Size   uint32 // [bytes]
	Kind   Kind
	Signed bool
	Elem   uint32 // of an array of integers: the size of an element [bytes]
	// Numbers of an enumeration: they may grow in number, but not change.
	Numbers map[string]uint64
	// Shape of what is opaque: its members with their offsets.
	Shape string
}

// Kind is how a field is compared and converted.
type Kind int

const (
	Integer Kind = iota
	Enumeration
	Integers // an array of them
	Opaque   // a union: copied if its shape is the same
	Kernel   // a lock or a timer: the kernel's own, never copied
)

// kernelTypes are the structs that the kernel keeps in a value.
var kernelTypes = map[string]bool{"bpf_spin_lock": true, "bpf_timer": true}

// Of flattens a type. It fails for bit fields and for what has no size.
func Of(t btf.Type) (Layout, error) {
	size, err := btf.Sizeof(t)
	if err != nil {
		return Layout{}, fmt.Errorf("size of %v: %w", t, err)
	}
	l := Layout{Size: uint32(size)}
	err = l.add("", 0, t)
	return l, err
}

func (l *Layout) add(path string, offset uint32, t btf.Type) error {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Int:
		l.Fields = append(l.Fields, Field{Path: path, Offset: offset, Size: t.Size, Kind: Integer, Signed: t.Encoding == btf.Signed})
	case *btf.Enum:
		numbers := make(map[string]uint64, len(t.Values))
		for _, v := range t.Values {
			numbers[v.Name] = v.Value
		}
		l.Fields = append(l.Fields, Field{Path: path, Offset: offset, Size: t.Size, Kind: Enumeration, Signed: t.Signed, Numbers: numbers})
	case *btf.Struct:
		if kernelTypes[t.Name] {
			l.Fields = append(l.Fields, Field{Path: path, Offset: offset, Size: t.Size, Kind: Kernel})
			return nil
		}
		return l.addMembers(path, offset, t.Members)
	case *btf.Union:
		return l.addUnion(path, offset, t)
	case *btf.Datasec:
		return l.addVariables(path, offset, t)
	case *btf.Array:
		return l.addArray(path, offset, t)
	default:
		return fmt.Errorf("field %q: a %T cannot lie in a map's value", path, t)
	}
	return nil
}

func (l *Layout) addMembers(path string, offset uint32, members []btf.Member) error {
	for _, m := range members {
		if m.BitfieldSize != 0 {
			return fmt.Errorf("field %q: bit fields have no layout here", join(path, m.Name))
		}
		if err := l.add(join(path, nameOf(m)), offset+m.Offset.Bytes(), m.Type); err != nil {
			return err
		}
	}
	return nil
}

// addVariables adds those of a section.
func (l *Layout) addVariables(path string, offset uint32, section *btf.Datasec) error {
	for _, v := range section.Vars {
		variable, ok := v.Type.(*btf.Var)
		if !ok {
			return fmt.Errorf("section %s: a %T is no variable", section.Name, v.Type)
		}
		if err := l.add(join(path, variable.Name), offset+v.Offset, variable.Type); err != nil {
			return err
		}
	}
	return nil
}

// nameOf is a member's name; an anonymous one is named for its own members.
func nameOf(m btf.Member) string {
	if m.Name != "" {
		return m.Name
	}
	var members []btf.Member
	switch t := btf.UnderlyingType(m.Type).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = nameOf(m)
	}
	return "(" + strings.Join(names, "|") + ")"
}

func (l *Layout) addUnion(path string, offset uint32, u *btf.Union) error {
	var shape []string
	for _, m := range u.Members {
		one, err := Of(m.Type)
		if err != nil {
			return err
		}
		for _, f := range one.Fields {
			shape = append(shape, fmt.Sprintf("%s@%d+%d", join(nameOf(m), f.Path), f.Offset, f.Size))
		}
	}
	l.Fields = append(l.Fields, Field{Path: path, Offset: offset, Size: u.Size, Kind: Opaque, Shape: strings.Join(shape, " ")})
	return nil
}

func (l *Layout) addArray(path string, offset uint32, a *btf.Array) error {
	size, err := btf.Sizeof(a.Type)
	if err != nil {
		return fmt.Errorf("field %q: %w", path, err)
	}
	if n, ok := btf.UnderlyingType(a.Type).(*btf.Int); ok {
		l.Fields = append(l.Fields, Field{
			Path: path, Offset: offset, Size: a.Nelems * n.Size, Kind: Integers, Signed: n.Encoding == btf.Signed, Elem: n.Size,
		})
		return nil
	}
	for i := range a.Nelems {
		if err := l.add(fmt.Sprintf("%s[%d]", path, i), offset+i*uint32(size), a.Type); err != nil {
			return err
		}
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	if name == "" {
		return path
	}
	return path + "." + name
}

// Under is the same layout as that of a part of another type.
func (l Layout) Under(path string) Layout {
	fields := slices.Clone(l.Fields)
	for i := range fields {
		fields[i].Path = join(path, fields[i].Path)
	}
	return Layout{l.Size, fields}
}

// Equal reports whether values of both layouts can lie in one map: the same
// fields at the same places, and no number of an enumeration that changed its
// meaning. Padding has no meaning; an enumeration may have further numbers.
func (l Layout) Equal(o Layout) bool { return len(l.Differences(o)) == 0 }

// Differences tells what is different in a later layout, for a person.
func (l Layout) Differences(later Layout) []string {
	var all []string
	tell := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if l.Size != later.Size {
		tell("%d bytes instead of %d", later.Size, l.Size)
	}
	after := later.byPath()
	for _, f := range l.Fields {
		g, ok := after[f.Path]
		delete(after, f.Path)
		switch {
		case !ok:
			tell("field %s is gone", f.Path)
		case g.Size != f.Size || g.Kind != f.Kind || g.Signed != f.Signed || g.Elem != f.Elem || g.Shape != f.Shape:
			tell("field %s has another type", f.Path)
		case g.Offset != f.Offset:
			tell("field %s moved from byte %d to %d", f.Path, f.Offset, g.Offset)
		case f.Kind == Enumeration && renumbered(f, g) != "":
			tell("field %s: %s has another number", f.Path, renumbered(f, g))
		}
	}
	for _, f := range later.Fields {
		if _, fresh := after[f.Path]; fresh {
			tell("field %s is new", f.Path)
		}
	}
	return all
}

func (l Layout) byPath() map[string]Field {
	fields := make(map[string]Field, len(l.Fields))
	for _, f := range l.Fields {
		fields[f.Path] = f
	}
	return fields
}

// renumbered is an enumerator whose number changed or went, "" if there is none.
func renumbered(f, later Field) string {
	for name, n := range f.Numbers {
		if m, ok := later.Numbers[name]; !ok || m != n {
			return name
		}
	}
	return ""
}
