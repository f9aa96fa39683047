// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

var (
	u8  = &btf.Int{Name: "__u8", Size: 1}
	u32 = &btf.Int{Name: "__u32", Size: 4}
	u64 = &btf.Int{Name: "__u64", Size: 8}
	s32 = &btf.Int{Name: "__s32", Size: 4, Encoding: btf.Signed}
)

func member(name string, offset uint32, t btf.Type) btf.Member {
	return btf.Member{Name: name, Offset: btf.Bits(8 * offset), Type: t}
}

func structOf(size uint32, members ...btf.Member) *btf.Struct {
	return &btf.Struct{Name: "s", Size: size, Members: members}
}

func layoutOf(t *testing.T, typ btf.Type) Layout {
	t.Helper()
	l, err := Of(typ)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDifferences(t *testing.T) {
	lock := &btf.Struct{Name: "bpf_spin_lock", Size: 4, Members: []btf.Member{member("val", 0, u32)}}
	state := func(names ...string) *btf.Enum {
		e := &btf.Enum{Name: "state", Size: 4}
		for i, n := range names {
			e.Values = append(e.Values, btf.EnumValue{Name: n, Value: uint64(i)})
		}
		return e
	}
	was := structOf(16, member("a", 0, u32), member("lock", 4, lock), member("state", 8, state("NONE", "SYN")), member("pad", 12, u32))
	for _, c := range []struct {
		name string
		is   btf.Type
		want string // a part of one difference; "" if there is none
	}{
		{"itself", was, ""},
		{"a typedef of it", &btf.Typedef{Name: "t", Type: was}, ""},
		{"a further enumerator", structOf(16, member("a", 0, u32), member("lock", 4, lock), member("state", 8, state("NONE", "SYN", "FIN")), member("pad", 12, u32)), ""},
		{"enumerators exchanged", structOf(16, member("a", 0, u32), member("lock", 4, lock), member("state", 8, state("SYN", "NONE")), member("pad", 12, u32)), "has another number"},
		{"fields exchanged", structOf(16, member("pad", 0, u32), member("lock", 4, lock), member("state", 8, state("NONE", "SYN")), member("a", 12, u32)), "field a moved from byte 0 to 12"},
		{"signed", structOf(16, member("a", 0, s32), member("lock", 4, lock), member("state", 8, state("NONE", "SYN")), member("pad", 12, u32)), "field a has another type"},
		{"one more", structOf(24, member("a", 0, u32), member("lock", 4, lock), member("state", 8, state("NONE", "SYN")), member("pad", 12, u32), member("b", 16, u64)), "field b is new"},
		{"one less", structOf(12, member("a", 0, u32), member("lock", 4, lock), member("state", 8, state("NONE", "SYN"))), "field pad is gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := layoutOf(t, was).Differences(layoutOf(t, c.is))
			if c.want == "" && len(got) > 0 || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A section is like a struct of its variables.
func TestOfSection(t *testing.T) {
	s := structOf(8, member("a", 0, u32), member("b", 4, u32))
	section := &btf.Datasec{Name: ".data.v", Size: 12, Vars: []btf.VarSecinfo{
		{Type: &btf.Var{Name: "v", Type: s}, Offset: 0, Size: 8}, {Type: &btf.Var{Name: "w", Type: u32}, Offset: 8, Size: 4},
	}}
	as := structOf(12, member("v", 0, s), member("w", 8, u32))
	if d := layoutOf(t, section).Differences(layoutOf(t, as)); len(d) > 0 {
		t.Errorf("%q", d)
	}
	if part := layoutOf(t, s).Under("v"); part.Fields[1].Path != "v.b" || part.Size != 8 {
		t.Errorf("%+v", part)
	}
}

func TestConvert(t *testing.T) {
	union := &btf.Union{Size: 4, Members: []btf.Member{member("mark", 0, u32), member("held", 0, u32)}}
	from := structOf(24, member("id", 0, u32), member("weight", 4, s32), member("flags", 8, u8),
		member("", 12, union), member("list", 16, &btf.Array{Index: u32, Type: u32, Nelems: 2}))
	to := structOf(48, member("fresh", 0, u64), member("flags", 8, u32), member("weight", 16, &btf.Int{Size: 8, Encoding: btf.Signed}),
		member("", 24, union), member("list", 28, &btf.Array{Index: u32, Type: u32, Nelems: 3}), member("id", 40, u32))
	c, err := NewConverter(layoutOf(t, from), layoutOf(t, to))
	if err != nil {
		t.Fatal(err)
	}
	le := binary.NativeEndian
	src := make([]byte, 24)
	le.PutUint32(src[0:], 7)
	le.PutUint32(src[4:], uint32(0xfffffffd)) // -3
	src[8] = 0x81
	le.PutUint32(src[12:], 99)
	le.PutUint32(src[16:], 1)
	le.PutUint32(src[20:], 2)
	dst := make([]byte, 48)
	for i := range dst {
		dst[i] = 0xaa
	}
	c.Convert(dst, src)
	want := make([]byte, 48)
	le.PutUint32(want[8:], 0x81)
	le.PutUint64(want[16:], uint64(0xfffffffffffffffd))
	le.PutUint32(want[24:], 99)
	le.PutUint32(want[28:], 1)
	le.PutUint32(want[32:], 2)
	le.PutUint32(want[40:], 7)
	if !slices.Equal(dst, want) {
		t.Errorf("%x, want %x", dst, want)
	}
}

// A new field may begin as another of the earlier layout; one that the earlier
// layout has is its own.
func TestConvertWithOrigins(t *testing.T) {
	was := layoutOf(t, structOf(8, member("weight", 0, s32), member("id", 4, u32)))
	is := layoutOf(t, structOf(16, member("id", 0, u32), member("weight", 4, s32), member("administrative", 8, s32), member("health", 12, u32)))
	origins := map[string]string{"administrative": "weight", "id": "administrative", "health": "no such field"}
	le := binary.NativeEndian
	for _, c := range []struct {
		from, to  Layout
		src, want []uint32
	}{
		{was, is, []uint32{5, 9}, []uint32{9, 5, 5, 0}},
		{is, is, []uint32{9, 0, 5, 100}, []uint32{9, 0, 5, 100}},
	} {
		converter, err := NewConverterWith(c.from, c.to, origins)
		if err != nil {
			t.Fatal(err)
		}
		src, dst, want := []byte{}, make([]byte, c.to.Size), []byte{}
		for _, w := range c.src {
			src = le.AppendUint32(src, w)
		}
		for _, w := range c.want {
			want = le.AppendUint32(want, w)
		}
		if converter.Convert(dst, src); !slices.Equal(dst, want) {
			t.Errorf("%v became %x, want %x", c.src, dst, want)
		}
	}
	// The origin must be of a type that can be converted.
	if _, err := NewConverterWith(was, layoutOf(t, structOf(8, member("administrative", 0, u8), member("id", 4, u32))), origins); err == nil {
		t.Error("a shorter field than its origin was taken")
	}
}

func TestConverterRefuses(t *testing.T) {
	was := structOf(8, member("a", 0, u32), member("b", 4, u32))
	for name, is := range map[string]btf.Type{
		"a shorter field":    structOf(8, member("a", 0, u8), member("b", 4, u32)),
		"another signedness": structOf(8, member("a", 0, s32), member("b", 4, u32)),
		"a struct of one":    structOf(8, member("a", 0, &btf.Array{Index: u32, Type: u8, Nelems: 4}), member("b", 4, u32)),
	} {
		if _, err := NewConverter(layoutOf(t, was), layoutOf(t, is)); err == nil || !strings.Contains(err.Error(), "field a") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
