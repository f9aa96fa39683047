// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/netip"
	"testing"

	"imbang/internal/testenv"
)

// Each datagram is right, and from another client.
func TestDatagrams(t *testing.T) {
	for _, to := range []string{"10.20.0.1:80", "[fd00:20::1]:80"} {
		d := datagrams{to: netip.MustParseAddrPort(to), from: netip.MustParseAddr("10.10.0.0")}
		if d.to.Addr().Is6() {
			d.from = netip.MustParseAddr("fd00:10::")
		}
		const n = 100000
		seen := make(map[netip.AddrPort]bool, n)
		for i := range n {
			frame := d.frame(i)
			if err := testenv.CheckSums(frame); err != nil {
				t.Fatalf("%s: datagram %d: %v", to, i, err)
			}
			src, dst, err := testenv.Ends(frame)
			if err != nil || dst != d.to || seen[src] {
				t.Fatalf("%s: datagram %d: from %s (seen: %t) to %s: %v", to, i, src, seen[src], dst, err)
			}
			seen[src] = true
		}
	}
}

// What the kernel prints, and nothing else, becomes caches.
func TestParseSlabs(t *testing.T) {
	before := kernelMemory{slabs: parseSlabs(`slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>
kmalloc-cg-96        504    588     96   42    1 : tunables    0    0    0 : slabdata     12     12      0
kmalloc-cg-128       480    480    128   32    1 : tunables    0    0    0 : slabdata     15     15      0
`)}
	after := kernelMemory{slabs: map[string]cache{"kmalloc-cg-96": {2504, 96}, "kmalloc-cg-128": {481, 128}, "bpf-112": {1000, 112}}}
	got := after.grown(before, 1000)
	if len(got) != 2 || got[0] != (SlabUse{"kmalloc-cg-96", 96, 2}) || got[1] != (SlabUse{"bpf-112", 112, 1}) {
		t.Errorf("%+v of %+v", got, before.slabs)
	}
}
