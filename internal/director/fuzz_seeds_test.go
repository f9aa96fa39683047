// SPDX-License-Identifier: Apache-2.0

package director

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const seeds = 2000

// seed adds scripts of random bytes. They meet every reason, and every way in
// which packets go on.
func (w *fuzzWorld) seed(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range seeds {
		data := make([]byte, random.IntN(64))
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		f.Add(binary.BigEndian.AppendUint16(data, uint16(i)))
	}
	f.Cleanup(func() {
		if f.Failed() {
			return
		}
		if !w.settled(f, 90*time.Second) {
			f.Error("some connections do not end")
		}
		w.wantNothingLeft(f)
		f.Logf("%d scripts, %d packets: %v", w.number, w.packets, w.met)
		if w.number >= seeds {
			w.metAll(f)
		}
	})
}

// notMet are the reasons that no packet alone can bring about.
var notMet = []string{
	"drop server deleted", "drop table full", "drop forwarding off", "drop forward method", "drop no tunnel source", "drop no hairpin",
	"refused drained", "drop check returned", "drop takeover", "drop guarded", "handed takeover", "pass from peer", "pass backup", "drop defence", "drop challenged", "drop proof", "drop unproven", "drop client share", "drop service changed", "drop no call id", "drop upgrade", "drop no neighbour", "pass hairpin icmp",
	"drop rate limit", // but if they come quickly
	"drop answer limit",
}

func (w *fuzzWorld) metAll(t testing.TB) {
	for _, what := range slices.Concat(w.names, []string{"translated", "hairpin", "tunnel", "told on", "cut", "here"}) {
		if w.met[what] == 0 && !slices.Contains(notMet, what) {
			t.Errorf("the seeds do not meet %q", what)
		}
	}
}
