// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"testing"

	"imbang/internal/lab/bench"
)

// The benchmark of many connections, with few: all are counted, and end on
// time. How much memory they take is for `imbang bench memory` to say, on a
// machine that does nothing else.
func TestBenchMemory(t *testing.T) {
	needRoot(t)
	for _, family := range []string{"4", "6"} {
		t.Run("IPv"+family, func(t *testing.T) {
			t.Parallel()
			out := must(t, nil, "", "bench", "memory", "--connections", "24000", "--rounds", "1", "--family", family, "--output", "json")
			var r bench.MemoryResult
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			if !r.Exact || r.Early != 0 || r.Late.Max <= 0 || r.Late.Max > 10 || r.PerConnection.N != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
	for _, args := range [][]string{{"--family", "5"}, {"--connections", "0"}} {
		if got := imbang(t, nil, "", append([]string{"bench", "memory"}, args...)...); got.status != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
