// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Arrangements bounds the number of arrangements of a relabelling test. An
// arrangement gives the figures of every block other labels. The test
// compares the measured labels with all arrangements of a group that contains
// them, which makes its level exact for every group (Hemerik and Goeman, TEST
// 27, 2018, theorem 1). No arrangement is drawn at random, so that equal data
// give equal p-values.
//
// The group is that of all permutations within blocks if it has at most Exact
// elements. Otherwise each block has the rotations of one cyclic order of its
// figures, a different order in each block; if the combinations of those are
// more than Rotations, a subgroup of them: blocks of equally many figures share
// rotations by a linear code.
type Arrangements struct {
	Exact, Rotations int
}

// usualArrangements take up to 0.3 s for ten competitors.
var usualArrangements = Arrangements{Exact: 1 << 19, Rotations: 1 << 15}

// a group enumerates arrangements of blocks as numbers of digits: block b gets
// permutation (sum over j of digit[j] * factor[j][b]) of permutations[b].
type group struct {
	permutations [][][]int
	radix        []int
	factor       [][]int
}

// size is the number of arrangements.
func (g group) size() int {
	n := 1
	for _, r := range g.radix {
		n *= r
	}
	return n
}

// group is the one for blocks that hold so many figures, of k competitors. If
// every block holds all of them, the first may keep its labels: the statistic is
// the same when all blocks are relabelled alike.
func (a Arrangements) group(present []int, k int) group {
	first := 0
	if len(present) > 0 && slices.Min(present) == k {
		first = 1
	}
	count := 1.0
	for _, m := range present[first:] {
		count *= math.Gamma(float64(m) + 1)
	}
	if count <= float64(a.Exact) {
		return allOf(present, first)
	}
	return a.rotationsOf(present)
}

// allOf has every permutation of every block but the first ones.
func allOf(present []int, first int) (g group) {
	for b, m := range present {
		list := [][]int{identity(m)}
		if b >= first {
			list = permutations(m)
		}
		g.addBlock(list, len(present), b)
	}
	return g
}

// addBlock gives a block a digit of its own.
func (g *group) addBlock(list [][]int, blocks, b int) {
	factor := make([]int, blocks)
	factor[b] = 1
	g.permutations = append(g.permutations, list)
	g.radix = append(g.radix, len(list))
	g.factor = append(g.factor, factor)
}

// rotationsOf has the rotations of the blocks, combined by a linear code over
// the integers modulo m for each number m of figures.
func (a Arrangements) rotationsOf(present []int) (g group) {
	// Constants: every choice of orders and codes gives an exact test.
	rng := rand.New(rand.NewPCG(1, 2))
	members := map[int][]int{} // blocks by the number of their figures
	for b, m := range present {
		g.permutations = append(g.permutations, rotations(rng.Perm(m)))
		if m > 1 {
			members[m] = append(members[m], b)
		}
	}
	kinds := make([]int, 0, len(members))
	for m := range members {
		kinds = append(kinds, m)
	}
	slices.Sort(kinds)
	for _, m := range kinds {
		rng.Shuffle(len(members[m]), func(i, j int) { members[m][i], members[m][j] = members[m][j], members[m][i] })
	}
	for room, more := float64(a.Rotations), true; more; {
		more = false
		for _, m := range kinds {
			if n := g.digits(m); n < len(members[m]) && float64(m) <= room {
				room /= float64(m)
				more = true
				g.addDigit(m, n, members[m], len(present), rng)
			}
		}
	}
	return g
}

// digits is the number of digits of a radix.
func (g group) digits(m int) (n int) {
	for _, r := range g.radix {
		if r == m {
			n++
		}
	}
	return n
}

// addDigit adds the n-th digit of a radix. The blocks that have no digit of
// their own in the end follow the others; one that gets its own follows it
// alone from now on.
func (g *group) addDigit(m, n int, members []int, blocks int, rng *rand.Rand) {
	for j, r := range g.radix {
		if r == m {
			g.factor[j][members[n]] = 0
		}
	}
	factor := make([]int, blocks)
	factor[members[n]] = 1
	for _, b := range members[n+1:] {
		factor[b] = rng.IntN(m)
		if n == 0 { // so that every block takes all of its rotations
			factor[b] = unit(m, rng)
		}
	}
	g.radix, g.factor = append(g.radix, m), append(g.factor, factor)
}

// unit is a number without a common divisor with m.
func unit(m int, rng *rand.Rand) int {
	for {
		u, a, b := 1+rng.IntN(m-1), 0, m
		for a = u; b != 0; {
			a, b = b, a%b
		}
		if a == 1 {
			return u
		}
	}
}

func identity(m int) []int {
	p := make([]int, m)
	for i := range p {
		p[i] = i
	}
	return p
}

// permutations lists all of m places, the identity first.
func permutations(m int) [][]int {
	list := [][]int{{}}
	for i := range m {
		var longer [][]int
		for _, p := range list {
			for at := len(p); at >= 0; at-- {
				longer = append(longer, slices.Insert(slices.Clone(p), at, i))
			}
		}
		list = longer
	}
	return list
}

// rotations lists those of a cyclic order, the identity first: the r-th sends
// order[i] to order[i+r].
func rotations(order []int) [][]int {
	m := len(order)
	list := make([][]int, max(1, m))
	for r := range list {
		list[r] = make([]int, m)
		for i := range m {
			list[r][order[i]] = order[(i+r)%m]
		}
	}
	return list
}

// each calls see with every arrangement of the rows, the measured one first.
// The rows it passes are used again.
func (g group) each(rows [][]float64, see func([][]float64)) {
	places := make([][]int, len(rows))
	turned := make([][]float64, len(rows))
	for b, row := range rows {
		for i, v := range row {
			if !math.IsNaN(v) {
				places[b] = append(places[b], i)
			}
		}
		turned[b] = slices.Clone(row)
	}
	digit := make([]int, len(g.radix))
	for {
		for b, row := range rows {
			sum := 0
			for j, d := range digit {
				sum += d * g.factor[j][b]
			}
			p := g.permutations[b][sum%len(g.permutations[b])]
			for i, from := range p {
				turned[b][places[b][i]] = row[places[b][from]]
			}
		}
		see(turned)
		j := 0
		for ; j < len(digit); j++ {
			if digit[j]++; digit[j] < g.radix[j] {
				break
			}
			digit[j] = 0
		}
		if j == len(digit) {
			return
		}
	}
}
