// SPDX-License-Identifier: Apache-2.0

package director

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
)

// Every map has a policy: a new map requires a decision on what an upgrade may do
// with it.
func TestUpgradePolicies(t *testing.T) {
	spec, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Maps {
		table := bpfobj.TableName(name)
		if _, ok := policies[table]; !ok && table != "" {
			t.Errorf("map %s has no policy", table)
		}
	}
	for name := range policies {
		if spec.Maps[bpfobj.MapName(name)] == nil {
			t.Errorf("the policy of %s is of no map", name)
		}
	}
}

// anotherBuild compiles the data plane with changed sources: the files of bpf/
// whose names are in edits, each with pairs of what is replaced by what.
func anotherBuild(t testing.TB, edits map[string][]string) *ebpf.CollectionSpec {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../bpf")); err != nil {
		t.Fatal(err)
	}
	for name, pairs := range edits {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		is := strings.NewReplacer(pairs...).Replace(string(text))
		if is == string(text) {
			t.Fatalf("nothing of %q is in %s", pairs, name)
		}
		if err := os.WriteFile(path, []byte(is), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return compileC(t, filepath.Join(dir, "lb.bpf.c"))
}

// compileC compiles a source for BPF as the data plane is.
func compileC(t testing.TB, source string) *ebpf.CollectionSpec {
	t.Helper()
	object := filepath.Join(t.TempDir(), "lb.o")
	cc := exec.Command("clang", "-O2", "-g", "-Wall", "-Werror", "-mcpu=v3", "-target", "bpfel",
		"-idirafter", "/usr/include/"+multiarch(t), "-c", source, "-o", object)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cc, err, out)
	}
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// multiarch is where Debian keeps asm/types.h.
func multiarch(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/include/*-linux-gnu/asm/types.h")
	if err != nil || len(found) == 0 {
		t.Fatalf("no asm/types.h (Debian's package linux-libc-dev): %v", err)
	}
	return filepath.Base(filepath.Dir(filepath.Dir(found[0])))
}

// edited is the compiled data plane with a struct or enum of another shape.
func edited(t testing.TB, name string, edit func(btf.Type)) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := bpfobj.LoadLb() // its types are its own
	if err != nil {
		t.Fatal(err)
	}
	all, err := spec.Types.AnyTypesByName(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		edit(one)
	}
	return spec
}

// swapped exchanges the offsets of two members of a struct.
func swapped(a, b string) func(btf.Type) {
	return func(t btf.Type) {
		s := t.(*btf.Struct)
		at := func(name string) int {
			return slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == name })
		}
		i, k := at(a), at(b)
		s.Members[i].Offset, s.Members[k].Offset = s.Members[k].Offset, s.Members[i].Offset
	}
}

// oneMore appends a member to a struct.
func oneMore(t btf.Type) {
	s := t.(*btf.Struct)
	s.Members = append(s.Members, btf.Member{Name: "novelty", Type: &btf.Int{Size: 4}, Offset: btf.Bits(8 * s.Size)})
	s.Size += 4
}

// renumber gives an enumerator another number.
func renumber(name string) func(btf.Type) {
	return func(t btf.Type) {
		e := t.(*btf.Enum)
		e.Values[slices.IndexFunc(e.Values, func(v btf.EnumValue) bool { return v.Name == name })].Value = 77
	}
}

// Connections of a build that has them in other tables are entered again, and these tables are gone.
func TestUpgradePlanOfFormerTable(t *testing.T) {
	r := newRig(t, small)
	cur, err := openPinnedBuild(r.dir)
	r.must(err)
	defer cur.close()
	for table := range connectionTables {
		cur.maps[table].Close()
		delete(cur.maps, table)
	}
	former := mapsOf(t, &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{
		"conns4": {Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1}, "conns6": {Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1},
	}})
	for name, m := range former {
		cur.maps[name], err = m.Clone()
		r.must(err)
	}
	plan, err := planUpgrade(cur, ours(t), Build{ABI, "another"})
	r.must(err)
	for _, m := range plan.Maps {
		if (m.Disposition == Adopted) != connectionTables[m.Name] || (m.Disposition == Gone) != (former[m.Name] != nil) {
			t.Errorf("%s is %s", m.Name, m.Disposition)
		}
	}
}

func TestUpgradePlan(t *testing.T) {
	r := newRig(t, small)
	cur, err := openPinnedBuild(r.dir)
	r.must(err)
	defer cur.close()
	for _, c := range []struct {
		name, changed string
		edit          func(btf.Type)
		want          map[Disposition][]string // but for what is kept
		error         string
	}{
		{"nothing", "server", func(btf.Type) {}, map[Disposition][]string{}, ""},
		{"a field more in connections", "conn6", oneMore, nil, "entries of the connection table: struct conn6"},
		{"fields of a connection exchanged", "conn", swapped("index", "hash"), nil, "entries of the connection table: struct conn4"},
		{"fields of blocks exchanged", "block_head", swapped("kind", "bucket"), nil, "map spare_blocks: "},
		{"fields of a server exchanged", "server", swapped("weight", "last_weight"), map[Disposition][]string{Converted: {"servers"}, Renewed: {"check_flows"}}, ""},
		{"a cache's entries", "route", swapped("until", "asked"), map[Disposition][]string{Renewed: {"routes"}}, ""},
		{"loads, which packets change meanwhile", "load", swapped("active", "inactive"), nil, "map loads: "},
		{"another format of the table", "table_format", renumber("TABLE_FORMAT"), nil, "TABLE_FORMAT has another number"},
		{"a scheduler renumbered", "scheduler", renumber("SCHED_RR"), nil, "SCHED_RR has another number"},
		{"a state renumbered", "conn_state", renumber("TCP_SYN_SENT"), nil, "TCP_SYN_SENT has another number"},
		{"a state more", "conn_state", func(t btf.Type) {
			e := t.(*btf.Enum)
			e.Values = append(e.Values, btf.EnumValue{Name: "NOVELTY", Value: 77})
		}, map[Disposition][]string{}, ""},
		{"a reason more", "reason", func(t btf.Type) {
			e := t.(*btf.Enum)
			last := &e.Values[len(e.Values)-1]
			e.Values = append(e.Values, btf.EnumValue{Name: last.Name, Value: last.Value + 1})
			e.Values[len(e.Values)-2].Name = "REASON_DROP_NOVELTY"
		}, map[Disposition][]string{Renewed: {"reasons"}}, ""},
		{"a reason renumbered", "reason", renumber("REASON_PASS_LOCAL"), nil, "REASON_PASS_LOCAL has another number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := edited(t, c.changed, c.edit)
			if c.name == "a reason more" {
				spec.Maps["reasons"].MaxEntries++
			}
			plan, err := planUpgrade(cur, spec, Build{ABI, "another"})
			if c.error != "" {
				if err == nil || !strings.Contains(err.Error(), c.error) {
					t.Errorf("error %v, want one with %q", err, c.error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[Disposition][]string{}
			for _, m := range plan.Maps {
				if m.Disposition == Renewed && m.Name != reasonsMap && m.Differences != nil {
					t.Errorf("%s begins empty, and lists %q", m.Name, m.Differences)
				}
				if m.Disposition != Kept && policies[m.Name] != own {
					got[m.Disposition] = append(got[m.Disposition], m.Name)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
