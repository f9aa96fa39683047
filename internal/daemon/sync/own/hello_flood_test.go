// SPDX-License-Identifier: Apache-2.0

package own

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// One recorded Hello that is sent over and over does not keep a backup from joining.
func TestJoinDuringAFloodOfHellos(t *testing.T) {
	var worst time.Duration
	for seed := range uint64(5) {
		w := newWorld(t, seed, 0)
		var recorded []byte
		w.wire = func(_ *node, d Datagram) {
			if kind(d.Bytes[4]) == kindHello && recorded == nil {
				recorded = slices.Clone(d.Bytes)
			}
		}
		master, old, joining := w.node().sender(), w.node().receiver(), w.node()
		w.run(time.Second)
		old.down = true
		attacker := netip.MustParseAddrPort("192.168.0.66:8790")
		var flood func()
		flood = func() {
			master.do(func(out *Output) { master.send.Receive(master.clock(), attacker, recorded, out) })
			w.at(w.now+20*time.Microsecond, flood) // 50 000/s
		}
		flood()
		w.run(100 * time.Millisecond)
		joining.receiver()
		began := w.now
		for !joining.receive.State().Following && w.now-began < 10*time.Second {
			w.run(time.Millisecond)
		}
		worst = max(worst, w.now-began)
	}
	if worst > time.Second {
		t.Errorf("a backup has joined after %v", worst)
	}
}
