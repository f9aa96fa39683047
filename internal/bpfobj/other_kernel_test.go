// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"bytes"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Members of the kernel's routing tables may have other names in other releases: a
// program that cannot read them loads all the same.
func TestLoadsWhereMembersHaveOtherNames(t *testing.T) {
	kernel, err := os.ReadFile("/sys/kernel/btf/vmlinux")
	if err != nil {
		t.Skip(err)
	}
	members := []string{
		"nhc_dev", "nhc_gw_family", "nhc_gw", "is_group", "nh_info", "nh_grp", "fib_nhc", "num_nh", "nh_entries", "metrics",
		"fib_main", "tb_data", "slen", "fa_list", "fa_info", "fa_dscp", "fa_slen", "fib_metrics", "fib_nhs", "fib_nh",
		"fib6_main_tbl", "tb6_root", "fn_bit", "fn_flags", "subtree", "fib6_next", "fib6_metrics", "fib6_dst", "fib6_nh", "plen",
		"key_vector", "tnode", "fib_alias", "fib_info", "fib6_node", "fib6_info", "rt6key", "nexthop", "nh_group", "nh_grp_entry", "dst_metrics",
		"nhc_exceptions", "ip_rt_min_pmtu", "fib6_nsiblings", "rt6i_exception_bucket", "fib6_local_tbl",
	}
	eachProgram(t, func(t *testing.T, name string, one *ebpf.CollectionSpec) {
		if name != "lb_local" {
			return // every program that routes has the same function
		}
		for _, member := range members {
			t.Run(member, func(t *testing.T) {
				was, is := []byte("\x00"+member+"\x00"), []byte("\x00"+member[1:]+"_\x00")
				if !bytes.Contains(kernel, was) {
					t.Skip("this kernel has no such name")
				}
				types, err := btf.LoadSpecFromReader(bytes.NewReader(bytes.ReplaceAll(kernel, was, is)))
				if err != nil {
					t.Fatal(err)
				}
				c, err := ebpf.NewCollectionWithOptions(one, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}})
				if err != nil {
					t.Fatal(err)
				}
				c.Close()
			})
		}
	})
}
