// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"imbang/internal/testenv"
)

// Each case is measured, and nothing costs nothing.
func TestPackets(t *testing.T) {
	testenv.Root(t)
	done := 0
	r, err := Packets(t.Context(), PacketsConfig{
		Schedulers: []string{"wlc"}, Servers: []int{2}, Flows: []int{8}, Packets: 2000, Rounds: 2,
		Progress: func(n, all int) { done = n * 10 / all },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Established) != 3 || len(r.New) != 2 || r.Making.N != 10 || done != 10 {
		t.Fatalf("%+v, progress %d of 10", r, done)
	}
	for _, c := range append(r.Established, r.New...) {
		if c.NS.N != 2 || c.NS.Max <= 0 {
			t.Errorf("%+v", c)
		}
	}
}
