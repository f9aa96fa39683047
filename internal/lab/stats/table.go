// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"math"
	"slices"
)

// logs turns series into a table of logarithms, a row a block. What has none,
// such as the 0 of a tool that rounds, is missing.
func logs(series []Series) [][]float64 {
	blocks := 1
	for _, s := range series {
		blocks = max(blocks, len(s.Values))
	}
	y := make([][]float64, blocks)
	for b := range y {
		y[b] = make([]float64, len(series))
		for i, s := range series {
			y[b][i] = math.NaN()
			if b < len(s.Values) && s.Values[b] > 0 {
				y[b][i] = math.Log(s.Values[b])
			}
		}
	}
	return y
}

// ranking orders the columns by their mean distance from the others in the same
// blocks.
func ranking(y [][]float64, k int, lessIsBetter bool) []int {
	score := make([]float64, k)
	order := make([]int, k)
	for a := range k {
		order[a] = a
		for b := a + 1; b < k; b++ {
			if d := differences(y, a, b); len(d) > 0 {
				m := middle(walsh(d))
				score[a], score[b] = score[a]-m, score[b]+m
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if lessIsBetter {
			return cmp.Compare(score[a], score[b])
		}
		return cmp.Compare(score[b], score[a])
	})
	return order
}

// differences lists b - a of the blocks that hold both.
func differences(y [][]float64, a, b int) []float64 {
	d := make([]float64, 0, len(y))
	for _, row := range y {
		if x := row[b] - row[a]; !math.IsNaN(x) {
			d = append(d, x)
		}
	}
	return d
}
