// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"imbang/internal/lab/arrivals"
)

// However many clients share a schedule, together they send exactly what one
// would, and as many counted arrivals as asked.
func TestDealIsAPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Plan{
			Rate:     rapid.Float64Range(1, 20000).Draw(t, "rate"),
			Arrivals: rapid.SampledFrom([]arrivals.Distribution{arrivals.Constant, arrivals.Poisson}).Draw(t, "arrivals"),
			Seed:     rapid.Uint64().Draw(t, "seed"),
			Clients:  make([]Client, rapid.IntRange(1, 5).Draw(t, "clients")),
			Shape:    arrivals.Shape{Batch: rapid.IntRange(0, 5).Draw(t, "batch")},
		}
		switch rapid.IntRange(0, 2).Draw(t, "shape") {
		case 1:
			p.Shape.On, p.Shape.Off = 7*time.Millisecond, 13*time.Millisecond
		case 2:
			p.Shape.RampTo = rapid.Float64Range(1, 20000).Draw(t, "ramp")
		}
		p.Warmup = time.Duration(rapid.Float64Range(0, 50).Draw(t, "warm-up gaps") * 1e9 / p.Rate)
		if rapid.Bool().Draw(t, "by number") {
			p.Connections = rapid.IntRange(1, 200).Draw(t, "connections")
		} else {
			p.Duration = 1 + time.Duration(rapid.Float64Range(0, 200).Draw(t, "gaps")*1e9/p.Rate)
		}
		walk := func(d *deal) (out []arrival) {
			for at, more := d.peek(0); more; at, more = d.peek(0) {
				a, _ := d.take()
				if a.at != at {
					t.Fatalf("took an arrival at %d, peeked %d", a.at, at)
				}
				out = append(out, a)
			}
			return out
		}
		alone := p
		alone.Clients = p.Clients[:1]
		one := newDeal(alone, 0)
		want := walk(one)
		got, ends := make([]arrival, len(want)), map[int64]bool{}
		total := 0
		for me := range p.Clients {
			d := newDeal(p, me)
			for i, a := range walk(d) {
				got[i*len(p.Clients)+me] = a
				total++
			}
			ends[d.close] = true
		}
		counted := 0
		for i, a := range want {
			if got[i] != a {
				t.Fatalf("arrival %d: %v, alone %v", i, got[i], a)
			}
			if a.counted != (a.at >= int64(p.Warmup)) {
				t.Fatalf("arrival at %d counted %v with warm-up %d", a.at, a.counted, p.Warmup)
			}
			if a.counted {
				counted++
			}
		}
		if total != len(want) || !ends[one.close] || len(ends) != 1 {
			t.Fatalf("%d arrivals ending at %v, alone %d ending at %d", total, ends, len(want), one.close)
		}
		if p.Connections > 0 && counted != p.Connections {
			t.Fatalf("%d counted, want %d", counted, p.Connections)
		}
		if len(want) > 0 && one.close < want[len(want)-1].at {
			t.Fatalf("window ends at %d, before the last arrival at %d", one.close, want[len(want)-1].at)
		}
	})
}
