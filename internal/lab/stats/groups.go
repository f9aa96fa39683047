// SPDX-License-Identifier: Apache-2.0

package stats

import "slices"

// GroupsAt are the groups by those differences alone whose p-value is at most
// alpha.
func (v Verdict) GroupsAt(alpha float64) [][]string {
	return named(cliques(len(v.Ranking), v.together(alpha)), v.Ranking)
}

// together reports which places of the ranking do not differ.
func (v Verdict) together(alpha float64) func(a, b int) bool {
	differ := map[[2]int]bool{}
	for _, p := range v.Pairs {
		differ[[2]int{p.a, p.b}] = p.Finding == Different && p.P <= alpha
	}
	return func(a, b int) bool { return !differ[[2]int{min(a, b), max(a, b)}] }
}

// cliques lists the largest sets of places of which every two are together: the
// letters of a compact letter display, by inserting each pair that differs and
// absorbing what became part of another (Piepho, Journal of Computational and
// Graphical Statistics 13, 2004).
func cliques(k int, together func(a, b int) bool) [][]int {
	all := make([]int, k)
	for i := range all {
		all[i] = i
	}
	sets := [][]int{all}
	for a := range k {
		for b := a + 1; b < k; b++ {
			if !together(a, b) {
				sets = split(sets, a, b)
			}
		}
	}
	slices.SortFunc(sets, slices.Compare)
	return sets
}

// split replaces every set that holds both by one without the one and one
// without the other.
func split(sets [][]int, a, b int) [][]int {
	var parts [][]int
	for _, s := range sets {
		if slices.Contains(s, a) && slices.Contains(s, b) {
			parts = append(parts, without(s, b), without(s, a))
		} else {
			parts = append(parts, s)
		}
	}
	var kept [][]int
	for i, s := range parts {
		absorbed := false
		for j, o := range parts {
			absorbed = absorbed || i != j && subset(s, o) && (len(s) < len(o) || j < i)
		}
		if !absorbed {
			kept = append(kept, s)
		}
	}
	return kept
}

func without(s []int, x int) []int {
	return slices.DeleteFunc(slices.Clone(s), func(y int) bool { return y == x })
}

func subset(s, of []int) bool {
	return !slices.ContainsFunc(s, func(x int) bool { return !slices.Contains(of, x) })
}

func named(sets [][]int, names []string) [][]string {
	var out [][]string
	for _, s := range sets {
		var g []string
		for _, i := range s {
			g = append(g, names[i])
		}
		out = append(out, g)
	}
	return out
}
