// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen lists the arrangements of blocks that hold the numbers 0, 1, 2 ...
func seen(g group, rows [][]float64) (list []string) {
	g.each(rows, func(turned [][]float64) { list = append(list, fmt.Sprint(turned)) })
	return list
}

func rowsOf(present ...int) [][]float64 {
	rows := make([][]float64, len(present))
	for b, m := range present {
		for i := range m {
			rows[b] = append(rows[b], float64(i))
		}
	}
	return rows
}

// All permutations come up once each, those of the first block only if a figure
// is missing somewhere.
func TestArrangementsAreAllPermutations(t *testing.T) {
	for _, c := range []struct {
		present []int
		k, want int
	}{
		{[]int{2, 2, 2, 2, 2, 2, 2}, 2, 64}, {[]int{3, 3, 3}, 3, 36}, {[]int{3, 2, 3}, 3, 72}, {[]int{2, 1, 0}, 2, 2}, {[]int{2, 2}, 3, 4},
	} {
		g := usualArrangements.group(c.present, c.k)
		list := seen(g, rowsOf(c.present...))
		if first := fmt.Sprint(rowsOf(c.present...)); list[0] != first {
			t.Errorf("%v: begins with %s", c.present, list[0])
		}
		slices.Sort(list)
		if n := len(slices.Compact(list)); n != c.want || g.size() != c.want {
			t.Errorf("%v: %d arrangements, size %d, want %d", c.present, n, g.size(), c.want)
		}
	}
}

// The rotations are a group: the arrangements of an arrangement are the same
// ones. Every figure comes to every place of its block equally often.
func TestRotationsAreAGroup(t *testing.T) {
	for _, present := range [][]int{{5, 5, 5, 5, 5, 5, 5, 5}, {4, 4, 3, 4, 1, 4, 0}, {6, 6, 6, 6}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}, {10, 10, 10, 9, 9, 10}} {
		g := Arrangements{Exact: 0, Rotations: 300}.group(present, slices.Max(present))
		if n := g.size(); n > 300 || n < 30 {
			t.Errorf("%v: %d arrangements", present, n)
		}
		rows := rowsOf(present...)
		want := seen(g, rows)
		slices.Sort(want)
		if n := len(slices.Compact(slices.Clone(want))); n != g.size() {
			t.Errorf("%v: %d different ones of %d", present, n, g.size())
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var one [][]float64
		at := rng.IntN(g.size())
		counts := map[string]int{}
		n := 0
		g.each(rows, func(turned [][]float64) {
			if n++; n == at {
				for _, row := range turned {
					one = append(one, slices.Clone(row))
				}
			}
			for b, row := range turned {
				for i, v := range row {
					counts[fmt.Sprint(b, i, v)]++
				}
			}
		})
		got := seen(g, one)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: not a group: %s", present, diff)
		}
		for at, n := range counts {
			var b, i, v int
			fmt.Sscan(at, &b, &i, &v)
			if n*present[b] != g.size() {
				t.Errorf("%v: figure %d of block %d is at %d in %d of %d", present, v, b, i, n, g.size())
			}
		}
	}
}

// What is missing stays missing.
func TestArrangementsKeepWhatIsMissing(t *testing.T) {
	rows := [][]float64{{1, math.NaN(), 2, 3, math.NaN()}, {1, 2, 3, 4, 5}}
	g := Arrangements{Exact: 1000}.group([]int{3, 5}, 5)
	n := map[string]bool{}
	g.each(rows, func(turned [][]float64) {
		row := turned[0]
		if !math.IsNaN(row[1]) || !math.IsNaN(row[4]) || row[0]+row[2]+row[3] != 6 {
			t.Fatal(row)
		}
		n[fmt.Sprint(row)] = true
	})
	if len(n) != 6 {
		t.Errorf("%d of 6 arrangements of the first block", len(n))
	}
}

// Rotations and all permutations claim the same, but for few pairs close to the
// limit.
func TestRotationsAgreeWithPermutations(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const alpha, studies = 0.05, 60
	differ, claimed := 0, 0
	for range studies {
		y := logs(world{4, 5, normal, same(0.03), firstOf(1, 0.08, 0), 0, 0}.study(rng))
		list := contrasts(y, nil)
		exact := byRelabelling(y, list, usualArrangements)
		few := byRelabelling(y, list, Arrangements{Rotations: 1 << 10})
		for i := range list {
			if exact[i] <= alpha {
				claimed++
			}
			if (exact[i] <= alpha) != (few[i] <= alpha) {
				differ++
			}
		}
	}
	t.Logf("%d claims of %d pairs, %d differ", claimed, 6*studies, differ)
	if claimed < 50 || differ > 6*studies/20 {
		t.Errorf("%d claims of %d pairs, %d differ", claimed, 6*studies, differ)
	}
}
