// SPDX-License-Identifier: Apache-2.0

package director

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// enum reads an enum of the data plane from its BTF.
func enum(t *testing.T, name string) []btf.EnumValue {
	t.Helper()
	spec, err := bpfobj.LoadLb()
	if err != nil {
		t.Fatal(err)
	}
	var e *btf.Enum
	if err := spec.Types.TypeByName(name, &e); err != nil {
		t.Fatal(err)
	}
	return e.Values
}

// A scheduler is a number in C, a name in Go and a header; a reason has a
// verdict and words. No list may lack what another has.
func TestListsAgree(t *testing.T) {
	byNumber := map[uint64]string{}
	for _, s := range model.Schedulers() {
		if other, twice := byNumber[uint64(s.Number)]; twice {
			t.Errorf("schedulers %s and %s have one number", s.Name, other)
		}
		byNumber[uint64(s.Number)] = s.Name
	}
	for _, v := range enum(t, "scheduler") {
		name, listed := byNumber[v.Value]
		delete(byNumber, v.Value)
		if v.Name == "SCHED_NONE" {
			if listed {
				t.Errorf("%s has the number of none", name)
			}
			continue
		}
		if want := strings.ToLower(strings.TrimPrefix(v.Name, "SCHED_")); name != want {
			t.Errorf("%s is named %q, want %q", v.Name, name, want)
			continue
		}
		header := filepath.Join("../../bpf/sched", name+".h")
		if _, err := os.Stat(header); err != nil {
			t.Errorf("scheduler %s: %v", name, err)
		}
	}
	for number, name := range byNumber {
		t.Errorf("scheduler %s has number %d, which the data plane does not know", name, number)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	r := newRig(t, Sizes{Services: 1, Servers: 1, Connections: 1})
	all, err := r.reasons()
	r.must(err)
	if want := len(enum(t, "reason")) - 1; len(all) != want {
		t.Errorf("%d reasons, want %d", len(all), want)
	}
	seen := map[string]bool{}
	for _, reason := range all {
		name := reason.Verdict + " " + reason.Reason
		if reason.Reason == "" || strings.ContainsAny(name, "()_") || name != strings.ToLower(name) || seen[name] {
			t.Errorf("reason %q", name)
		}
		if v := reason.Verdict; v != "pass" && v != "refused" && v != "drop" && v != "handed" {
			t.Errorf("reason %q: not a verdict", name)
		}
		seen[name] = true
	}
}

// Every state that a connection can be in has a timeout and a name.
func TestStatesHaveTimeouts(t *testing.T) {
	for _, v := range enum(t, "conn_state") {
		state := bpfobj.LbConnState(v.Value)
		if state == bpfobj.LbConnStateCONN_STATES || state == bpfobj.LbConnStateCONN_TEMPLATE {
			continue // a template's is its service's
		}
		if defaultTimeouts[state] <= 0 {
			t.Errorf("%s has no timeout", v.Name)
		}
		if name := stateName(uint8(state), 0); name == "" || strings.Contains(name, "(") {
			t.Errorf("%s is called %q", v.Name, name)
		}
	}
}

// The connection table's memory, and what the auditor reads of clocks, have one layout for the data
// plane and for this package.
func TestTableLayout(t *testing.T) {
	spec, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	structure := func(name string) *btf.Struct {
		t.Helper()
		var s *btf.Struct
		if err := spec.Types.TypeByName(name, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	tick, ok := memberOffset(structure("clock"), "tick")
	if !ok {
		t.Error("clocks have no tick")
	}
	outer := spec.Maps["block_pages"]
	for what, c := range map[string]struct{ got, want uint32 }{
		"a block":             {structure("block").Size, blockBytes},
		"its lines":           {(blockBytes - lineBytes + 8) / lineBytes, blockLines}, // wherever the first begins
		"an entry of IPv4":    {structure("conn4").Size, lineBytes},
		"an entry of IPv6":    {(structure("conn6").Size + lineBytes - 1) / lineBytes * lineBytes, 2 * lineBytes},
		"a page's block":      {outer.InnerMap.ValueSize, blockBytes},
		"a page's blocks":     {outer.InnerMap.MaxEntries, pageBlocks},
		"blocks in pages":     {outer.MaxEntries * pageBlocks, spareFirst},
		"blocks beside pages": {spec.Maps["spare_blocks"].MaxEntries, maxBlocks - spareFirst},
		"where a tick is":     {tick, 16},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", what, c.got, c.want)
		}
	}
}

// Ten thousand services with ten servers each fit without a flag.
func TestDefaultSizes(t *testing.T) {
	spec, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{
		"services": 10_000, "service_states": 10_000, "service_counters": 10_000, "service_zeros": 10_000, "service_births": 10_000,
		"service_rates": 10_000, "bucket_tables": 10_000, "maglevs": 10_000, "servers": 100_000, "loads": 100_000,
		"server_counters": 100_000, "server_zeros": 100_000, "server_births": 100_000, "server_rates": 100_000, "maglev_turns": 100_000,
		"order": 10_000 * 16, "trees": 10_000 * 16, // the power of two above ten
	} {
		m := spec.Maps[name]
		got := m.MaxEntries
		if m.InnerMap != nil {
			got *= m.InnerMap.MaxEntries
		}
		if got < want {
			t.Errorf("%s has room for %d, want %d", name, got, want)
		}
	}
}
