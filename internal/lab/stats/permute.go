// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
)

// byRelabelling gives for each contrast the share of relabelled studies whose
// largest t, over all pairs, is no smaller than its own: a p-value that counts
// all pairs in. Contrasts that are not asked for get 1.
func byRelabelling(y [][]float64, list []contrast, asked []bool, times int, seed uint64) []float64 {
	p := make([]float64, len(list))
	rng := rand.New(rand.NewPCG(seed, uint64(times)))
	z := centred(y)
	reached := make([]int, len(list))
	var scratch []contrast
	for range times {
		for _, row := range z {
			relabel(row, rng)
		}
		scratch = contrasts(z, scratch)
		largest := 0.0
		for _, c := range scratch {
			largest = max(largest, c.t)
		}
		for i, c := range list {
			if largest >= c.t*(1-1e-9) { // the same arrangement, summed in another order
				reached[i]++
			}
		}
	}
	for i := range p {
		p[i] = 1
		if asked[i] {
			p[i] = float64(reached[i]+1) / float64(times+1) // the measured labels count as one
		}
	}
	return p
}

// relabel shuffles what is present in a block; what is missing stays missing.
func relabel(row []float64, rng *rand.Rand) {
	for i := len(row) - 1; i > 0; i-- {
		if math.IsNaN(row[i]) {
			continue
		}
		j := rng.IntN(i + 1)
		for math.IsNaN(row[j]) { // row[i] is present, so this ends
			j = rng.IntN(i + 1)
		}
		row[i], row[j] = row[j], row[i]
	}
}

// centred copies y with each block's mean taken off, which keeps all
// differences and loses no digits to what the block has in common.
func centred(y [][]float64) [][]float64 {
	z := make([][]float64, len(y))
	for b, row := range y {
		present := Present(row)
		sum := 0.0
		for _, v := range present {
			sum += v
		}
		z[b] = make([]float64, len(row))
		for i, v := range row {
			z[b][i] = v - sum/float64(max(1, len(present)))
		}
	}
	return z
}

// Needed is the number of blocks below which no difference between k
// competitors could be claimed at an error rate of alpha: of the (k!)^n ways to
// label n blocks, k! are only other names for the measured one.
func Needed(k int, alpha float64) int {
	names, _ := math.Lgamma(float64(k) + 1)
	n := leastBlocks
	for k > 1 && float64(1-n)*names > math.Log(alpha) {
		n++
	}
	return n
}

// leastBlocks is the least number of blocks for a claim. With three or four, and
// unequal noise, up to 8 % of simulated studies (10 % of rounded figures) made a false
// one: too little is known of each pair's noise.
const leastBlocks = 5
