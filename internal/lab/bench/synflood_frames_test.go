// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/netip"
	"testing"

	"imbang/internal/testenv"
)

// The SYNs are whole ones, of different clients, to the service.
func TestSynFrames(t *testing.T) {
	to := netip.MustParseAddrPort("10.20.0.1:80")
	m := newSynMaker([6]byte{2}, [6]byte{4}, to, 1<<32-500)
	seen := map[netip.Addr]bool{}
	for range 100000 {
		f := m.frame
		m.next(f[:])
		if err := testenv.CheckSums(f[:]); err != nil {
			t.Fatalf("frame %d: %v", m.n, err)
		}
		src, dst, err := testenv.Ends(f[:])
		if err != nil || dst != to {
			t.Fatalf("frame %d is to %s: %v", m.n, dst, err)
		}
		if seen[src.Addr()] || src.Port() < 1024 || src.Addr().As4()[0]>>5 != 1 {
			t.Fatalf("frame %d is from %s", m.n, src)
		}
		seen[src.Addr()] = true
	}
}
