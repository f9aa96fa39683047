// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// formerMaps are the maps of one element that builds of ABI 1 had.
func formerMaps(t *testing.T) map[string]*ebpf.Map {
	t.Helper()
	bpf, err := filepath.Abs("../../bpf")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("#include %q\n", filepath.Join(bpf, "types.h"))
	for _, parts := range formerParts {
		for _, part := range parts {
			text += fmt.Sprintf("struct {\n\t__uint(type, BPF_MAP_TYPE_ARRAY);\n\t__uint(max_entries, 1);\n\t__type(key, __u32);\n\t__type(value, struct %s);\n} %s SEC(\".maps\");\n", part.name, part.table)
		}
	}
	source := filepath.Join(t.TempDir(), "former.bpf.c")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return mapsOf(t, compileC(t, source))
}

// mapsOf makes the maps of a spec, by the names of their tables.
func mapsOf(t *testing.T, spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	t.Helper()
	objs, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(objs.Close)
	tables := map[string]*ebpf.Map{}
	for name, m := range objs.Maps {
		tables[bpfobj.TableName(name)] = m
	}
	return tables
}

// What a build of ABI 1 had in maps of one element becomes parts of variables, and an
// upgrade from there to another build of this ABI keeps it.
func TestUpgradeOfMapsOfOneElement(t *testing.T) {
	testenv.Root(t)
	put := func(m *ebpf.Map, value any) {
		t.Helper()
		if err := m.Put(uint32(0), value); err != nil {
			t.Fatal(err)
		}
	}
	former := formerMaps(t)
	set := defaultConfig([2]uint32{1, 2})
	set.Generation, set.Successor, set.Draining = 42, 1, 3
	secret := bpfobj.LbSecret{Word: [2]uint64{5, 6}}
	held := bpfobj.LbQuarantine{Barriers: 7, Services: 1}
	held.Service[0] = 8
	put(former["config"], set)
	put(former["secrets"], secret)
	put(former["quarantines"], held)
	put(former["attacks"], bpfobj.LbAttack{Number: 9, Last: bpfobj.LbHandshakeCounts{Opened: 11}})
	put(former["defences"], bpfobj.LbDefence{Until: 10})

	spec := ours(t).Copy()
	spec.Programs = nil
	for name := range spec.Maps {
		switch table := bpfobj.TableName(name); table {
		case configTable, stateTable, "pages":
		default:
			delete(spec.Maps, name)
		}
	}
	cur := &pinnedBuild{maps: former}
	var hash bpfobj.LbFlowSecret
	for _, from := range []string{"ABI 1", "this one"} {
		next := &pinnedBuild{maps: mapsOf(t, spec)}
		put(next.maps["pages"], bpfobj.LbPageTable{Bound: blocksFor(100)})
		u := &upgrade{cur: cur, next: next, spec: spec}
		plan, err := planMap(stateTable, cur, spec.Maps[bpfobj.MapName(stateTable)])
		want := Converted
		if from != "ABI 1" {
			want = Kept
		}
		if err != nil || plan.Disposition != want {
			t.Errorf("%s: state is %v (%v), want %v", from, plan, err, want)
		}
		u.result.Plan = &UpgradePlan{}
		if err := u.copySettings(); err != nil {
			t.Fatal(from, err)
		}
		if err := u.copyState(stateTable); err != nil {
			t.Fatal(from, err)
		}
		config, err := readConfig(next.maps[configTable])
		if err != nil {
			t.Fatal(from, err)
		}
		if config.Hash == (bpfobj.LbFlowSecret{}) || from != "ABI 1" && config.Hash != hash {
			t.Errorf("%s: the secret of the connection table is %v, was %v", from, config.Hash, hash)
		}
		hash = config.Hash
		wantSet := set
		wantSet.Successor = 0
		if wanted := (bpfobj.LbConfigTable{Settings: wantSet, Secret: secret, Quarantine: held, Hash: hash}); config != wanted {
			t.Errorf("%s: the configuration is %+v, want %+v", from, config, wanted)
		}
		var state bpfobj.LbStateTable
		if err := next.maps[stateTable].Lookup(uint32(0), &state); err != nil {
			t.Fatal(from, err)
		}
		if state.Attack.Number != 9 || state.Attack.Last.Opened != 0 || state.Defence.Until != 10 || state.Listed != 1 {
			t.Errorf("%s: the state is %+v", from, state)
		}
		cur = next
	}
}
