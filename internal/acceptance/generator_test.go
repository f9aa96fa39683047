// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"strings"
	"testing"

	"imbang/internal/lab/bench"
)

// The comparison of load generators, with few connections: everybody that is
// installed takes part. Who does more with its CPU time is for `imbang bench
// generator` to say, on a machine that does nothing else.
func TestBenchGenerator(t *testing.T) {
	needRoot(t)
	got := imbang(t, nil, "", "bench", "generator", "--connections", "1000", "--rounds", "1", "--output", "json")
	var r bench.GeneratorResult
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.status > 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	if (got.status == 0) != r.KeepsUp || len(r.Generators)+len(r.Missing) != 5 || r.Rate <= 0 {
		t.Errorf("status %d, %+v", got.status, r)
	}
	for _, g := range r.Generators {
		if g.PerCPUSecond.N != 1 || g.PerCPUSecond.Median <= 0 || g.PerSecond.Median <= 0 {
			t.Errorf("%+v", g)
		}
	}
	for _, m := range r.Missing {
		if !strings.Contains(m, "apt install") {
			t.Errorf("missing without a remedy: %s", m)
		}
	}
	if got := imbang(t, nil, "", "bench", "generator", "--rounds", "0"); got.status != 2 {
		t.Errorf("no rounds: %+v", got)
	}
}
