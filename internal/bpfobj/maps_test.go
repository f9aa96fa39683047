// SPDX-License-Identifier: Apache-2.0

package bpfobj

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

// mostMaps is how many maps the kernel lets one program use (MAX_USED_MAPS).
const mostMaps = 64

// No program uses more maps than the kernel allows. The verifier says so too, but only of
// the programs that are loaded on the kernel of the test.
func TestMapsOfPrograms(t *testing.T) {
	for _, object := range []string{"lb_bpfel.o", "lbstages/lb_bpfel.o", "lbtest/lb_bpfel.o"} {
		t.Run(object, func(t *testing.T) {
			spec, err := ebpf.LoadCollectionSpec(object)
			if err != nil {
				t.Fatal(err)
			}
			for name, p := range spec.Programs {
				used := map[string]bool{}
				for _, ins := range p.Instructions {
					if ins.IsLoadFromMap() {
						used[ins.Reference()] = true
					}
				}
				if len(used) > mostMaps {
					t.Errorf("%s uses %d maps, at most %d", name, len(used), mostMaps)
				}
				t.Logf("%s: %d maps: %s", name, len(used), strings.Join(slices.Sorted(maps.Keys(used)), " "))
			}
		})
	}
}
