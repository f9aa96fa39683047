// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"

	"imbang/internal/lab/rng"
)

// popularity draws from a number of things by Zipf's law.
type popularity struct {
	*rng.Choice
	r *rand.Rand
}

func newPopularity(n int, exponent float64, r *rand.Rand) *popularity {
	return &popularity{rng.NewChoice(rng.Zipf(n, exponent)), r}
}

// draw is the index of one of them, 0 the most popular.
func (p *popularity) draw() int { return int(p.At(p.r.Float64())) }
