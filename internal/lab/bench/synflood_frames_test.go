// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/netip"
	"testing"

	"imbang/internal/testenv"
)

// The frames are whole ones, of different clients, to the service.
func TestInventedFrames(t *testing.T) {
	for _, kind := range FloodKinds {
		t.Run(string(kind), func(t *testing.T) {
			to, from, each := netip.MustParseAddrPort("10.20.0.1:80"), netip.MustParsePrefix("32.0.0.0/3"), 1
			if kind == FloodPrefix {
				to, from = netip.MustParseAddrPort("[fd00:20::1]:80"), kind.abyss().all
			}
			if kind == FloodHandshake {
				each = 2
			}
			m := newFloodMaker(kind, [6]byte{2}, [6]byte{4}, to, 1<<32-500)
			seen := map[netip.Addr]int{}
			for range 100000 {
				f := append([]byte(nil), m.frame...)
				m.next(f)
				if err := testenv.CheckSums(f); err != nil {
					t.Fatalf("frame %d: %v", m.n, err)
				}
				src, dst, err := testenv.Ends(f)
				if err != nil || dst != to {
					t.Fatalf("frame %d is to %s: %v", m.n, dst, err)
				}
				seen[src.Addr()]++
				if seen[src.Addr()] > each || src.Port() < 1024 || !from.Contains(src.Addr()) {
					t.Fatalf("frame %d is from %s", m.n, src)
				}
			}
		})
	}
}
