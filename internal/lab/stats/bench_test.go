// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math/rand/v2"
	"testing"
)

func BenchmarkJudgeTenInTwentyBlocks(b *testing.B) {
	w := world{10, 20, normal, same(0.03), firstOf(3, -0.5, 0), 0, 0}
	s := w.study(rand.New(rand.NewPCG(1, 1)))
	for b.Loop() {
		Judge(s, NewQuestion(true))
	}
}
