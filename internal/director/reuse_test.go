// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/hex"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// contents are the elements of all tables of a data plane but zero ones of arrays,
// by "table key". Pages may stay, if they are empty.
func contents(t *testing.T, p *DataPlane) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, m := range p.objs.Maps {
		if name = bpfobj.TableName(name); name == "" || name == "pages" {
			continue
		}
		key, err := m.NextKeyBytes(nil)
		for ; key != nil && err == nil; key, err = m.NextKeyBytes(key) {
			value := "there"
			if m.Type() == ebpf.PerCPUArray {
				var each [][]byte
				if err := m.Lookup(key, &each); err != nil {
					t.Fatal(name, err)
				}
				value = ""
				for _, one := range each {
					value += hex.EncodeToString(one)
				}
			} else if raw, err := m.LookupBytes(key); err != nil {
				t.Fatal(name, err)
			} else if raw == nil {
				continue // of a map of maps or of programs
			} else if name == "block_pages" || pagingOf(name) != nil {
				value = pageContents(t, m, key)
			} else if m.Type() != ebpf.ProgramArray && m.Type() != ebpf.ArrayOfMaps {
				value = hex.EncodeToString(raw)
			}
			isArray := m.Type() == ebpf.Array || m.Type() == ebpf.PerCPUArray || name == "block_pages" || pagingOf(name) != nil
			if isArray && strings.Trim(value, "0") == "" {
				continue
			}
			all[name+" "+hex.EncodeToString(key)] = value
		}
		if err != nil {
			t.Fatal(name, err)
		}
	}
	return all
}

// pageContents are the elements of a page.
func pageContents(t *testing.T, m *ebpf.Map, key []byte) (value string) {
	t.Helper()
	var page *ebpf.Map
	if err := m.Lookup(key, &page); err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	for i := range page.MaxEntries() {
		each := make([][]byte, 1)
		var err error
		if page.Type() == ebpf.PerCPUArray {
			err = page.Lookup(i, &each)
		} else {
			each[0], err = page.LookupBytes(i)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range each {
			value += hex.EncodeToString(one)
		}
	}
	return value
}

// A used data plane is as a loaded one, in every table.
func TestReusedIsAsNew(t *testing.T) {
	testenv.Root(t)
	spec, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	for _, xdp := range []bool{false, true} {
		p, err := newDataPlane(spec.Copy(), dataPlaneKind{small, xdp})
		if err != nil {
			t.Fatal(err)
		}
		fresh := contents(t, p)
		var reuse Reuse
		used := map[string]bool{}
		t.Run("used", func(t *testing.T) {
			r := newRigWith(t, func(r *rig) {
				r.reuse, r.plane = &reuse, p
				r.must(r.ns.Do(func() (err error) { r.Director, err = p.open(); return err }))
			})
			r.furnish()
			r.must(r.Mark(MarkRule{Prefix: netip.MustParsePrefix("10.99.0.0/16"), Mark: markMasq}))
			for n, scheduler := range []string{"dh", "sh", "mh", "lblc", "lblcr", "wrr"} {
				r.addService(tcpService(nthVIP(n+50), scheduler), 1, 2, 3)
				for i := range 20 {
					r.syn(nthClient(i), nthVIP(n+50))
				}
			}
			for _, f := range families {
				for _, vip := range []int{vipMasq, vipSamePort, vipDirect, vipEmpty, vipAll, vipOnePacket} {
					for _, packet := range transports(at(f.client, 3000), at(f.vip(vip), 80)) {
						r.fromClient(packet)
					}
				}
			}
			r.ownsRepliesHere()
			tracer := r.trace(Filter{})
			defer r.untrace(tracer)
			r.syn(client1, nthVIP(50))
			for place := range contents(t, p) {
				table, _, _ := strings.Cut(place, " ")
				used[table] = true
			}
		})
		if got := contents(t, p); !maps.Equal(got, fresh) {
			t.Error(cmp.Diff(fresh, got))
		}
		if again, err := reuse.get(p.kind, nil); again != p || err != nil {
			t.Errorf("the data plane is not there to be used again: %v", err)
		}
		for _, table := range []string{
			"block_pages", "bucket_blocks", "blocks", "shape", "services", "servers", "order", "loads", "service_states",
			"bucket_tables", "maglevs", "localities", "locality_sets", "marks", "routes", "service_counters", "server_counters",
			"reasons", "config", "cache", "state", "allowances", "tracers", "rings",
		} {
			if !used[table] {
				t.Errorf("%s had nothing to be emptied of", table)
			}
		}
		p.Close()
	}
}
