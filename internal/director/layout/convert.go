// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/binary"
	"fmt"
)

// Converter makes a value of one layout from that of another: fields of the
// same path are copied, new ones are zero, and those that are gone are left out.
type Converter struct {
	from, to Layout
	pairs    []pair
}

type pair struct{ from, to Field }

// NewConverter refuses layouts with a field that would lose its meaning: one
// that became shorter, an enumeration that was renumbered, a union of another
// shape.
func NewConverter(from, to Layout) (*Converter, error) { return NewConverterWith(from, to, nil) }

// NewConverterWith is NewConverter, where some new fields have an origin: they
// begin as another field of the earlier layout.
func NewConverterWith(from, to Layout, origins map[string]string) (*Converter, error) {
	c := &Converter{from: from, to: to}
	old := from.byPath()
	for _, g := range to.Fields {
		f, ok := old[g.Path]
		if origin := origins[g.Path]; !ok && origin != "" {
			f, ok = old[origin]
		}
		if !ok || g.Kind == Kernel {
			continue
		}
		if err := convertible(f, g); err != nil {
			return nil, err
		}
		c.pairs = append(c.pairs, pair{f, g})
	}
	return c, nil
}

func convertible(f, g Field) error {
	switch {
	case f.Kind != g.Kind || f.Signed != g.Signed || f.Elem != g.Elem:
		return fmt.Errorf("field %s has a type that the earlier one cannot be converted to", g.Path)
	case g.Size < f.Size:
		return fmt.Errorf("field %s became shorter (%d bytes instead of %d)", g.Path, g.Size, f.Size)
	case f.Kind == Opaque && f.Shape != g.Shape:
		return fmt.Errorf("the members of union %s changed", g.Path)
	case f.Kind == Enumeration && renumbered(f, g) != "":
		return fmt.Errorf("field %s: %s has another number", g.Path, renumbered(f, g))
	}
	return nil
}

// Convert writes to, which it zeroes first; both are as long as their layouts
// say.
func (c *Converter) Convert(to, from []byte) {
	clear(to[:c.to.Size])
	for _, p := range c.pairs {
		src, dst := from[p.from.Offset:][:p.from.Size], to[p.to.Offset:][:p.to.Size]
		if p.from.Size == p.to.Size || p.to.Kind == Integers || p.to.Kind == Opaque {
			copy(dst, src)
			continue
		}
		widen(dst, src, p.to.Signed)
	}
}

// widen writes an integer of the host's byte order into a longer one.
func widen(dst, src []byte, signed bool) {
	var fill byte
	little := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	top := src[0]
	if little {
		top = src[len(src)-1]
	}
	if signed && top&0x80 != 0 {
		fill = 0xff
	}
	for i := range dst {
		dst[i] = fill
	}
	if little {
		copy(dst, src)
	} else {
		copy(dst[len(dst)-len(src):], src)
	}
}

// Over is Convert, but what the earlier layout does not have stays as it is.
func (c *Converter) Over(to, from []byte) {
	kept := make([]byte, c.to.Size)
	copy(kept, to)
	c.Convert(to, from)
	has := map[string]bool{}
	for _, p := range c.pairs {
		has[p.to.Path] = true
	}
	for _, f := range c.to.Fields {
		if !has[f.Path] {
			copy(to[f.Offset:][:f.Size], kept[f.Offset:][:f.Size])
		}
	}
}
