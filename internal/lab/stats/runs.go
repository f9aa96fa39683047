// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/combin"
)

// Shift is how a figure differs between two runs, measured at different times:
// the blocks of the one are no pairs of the other's.
type Shift struct {
	Name    string  `json:"name"`
	BlocksA int     `json:"blocks_a"`
	BlocksB int     `json:"blocks_b"`
	Finding Finding `json:"finding"`
	// Difference is by what share B is greater than A: the middle of the ratios
	// of every figure of B to every one of A (Hodges and Lehmann).
	Difference float64 `json:"difference"`
	// Joint holds the difference; those of all figures do at once, at its level.
	Joint Interval `json:"joint"`
	// Own is the rank-sum interval of this figure alone.
	Own Interval `json:"own"`
	// P is the greater p-value of both tests, which account for all figures.
	P            float64 `json:"p"`
	PStudent     float64 `json:"p_student"`
	PRelabelling float64 `json:"p_relabelling"` // 1 if PStudent exceeds alpha already
}

// Shifts compares the series of two runs one by one, a[i] with b[i], for any
// claim to be false in at most Alpha of all studies.
//
// The two tests are those of Judge. Student's t is Welch's, as two runs may
// be unequally noisy, with Bonferroni's correction. The other relabels whole
// blocks: if the runs are alike, each block might as well be of the other run,
// and all its figures with it, since they share the machine's drift; each figure's
// t is compared with the largest over all figures (Westfall and Young).
//
// The cause of a difference is not known: the machine may have changed between
// the runs. Each run's drift is in its spread, not removed as within blocks.
func Shifts(a, b []Series, q Question) []Shift {
	y := runTable{logs(a), logs(b)}
	if len(a) == 0 {
		return nil
	}
	list := y.contrasts(y.order())
	student, asked := make([]float64, len(list)), false
	m := float64(len(list))
	for i, c := range list {
		student[i] = 1
		if c.enough() {
			student[i] = min(1, m*studentTails(c.t, c.df))
		}
		asked = asked || student[i] <= q.Alpha
	}
	relabelled := make([]float64, len(list))
	if asked {
		relabelled = y.relabel(list, q.Arrangements)
	}
	out := make([]Shift, len(list))
	for i, c := range list {
		s := Shift{Name: a[i].Name, BlocksA: c.na, BlocksB: c.nb, PStudent: student[i], PRelabelling: 1, Finding: Unclear}
		if student[i] <= q.Alpha {
			s.PRelabelling = relabelled[i]
		}
		s.P = max(s.PStudent, s.PRelabelling)
		s.Difference, s.Own = rankSum(y.column(0, i), y.column(1, i), 1-q.Alpha)
		if c.enough() {
			half := studentPoint(q.Alpha/m, c.df) * c.error
			s.Joint = shares(Interval{c.mean - half, c.mean + half, 1 - q.Alpha})
			if s.P > q.Alpha {
				s.Joint.Low, s.Joint.High = min(s.Joint.Low, 0), max(s.Joint.High, 0)
			}
			s.Finding = Pair{Difference: s.Difference, Joint: s.Joint, P: s.P}.finding(q)
		}
		out[i] = s
	}
	return out
}

// NeededOfRuns is the number of blocks that both runs need for a claim.
const NeededOfRuns = leastBlocks

// runTable has the logarithms of two runs: a row a block, a column a figure.
type runTable [2][][]float64

// apart is what two runs say of one figure.
type apart struct {
	na, nb int
	mean   float64 // of B minus that of A
	error  float64 // of the mean
	df, t  float64
}

func (c apart) enough() bool { return c.na >= leastBlocks && c.nb >= leastBlocks }

// order lists all blocks, A's first.
func (y runTable) order() [][]float64 { return slices.Concat(y[0], y[1]) }

func (y runTable) column(run, i int) []float64 {
	var out []float64
	for _, row := range y[run] {
		out = append(out, row[i])
	}
	return Present(out)
}

// contrasts compares the first blocks, as many as A has, with the others.
func (y runTable) contrasts(blocks [][]float64) []apart {
	list := make([]apart, len(blocks[0]))
	for i := range list {
		list[i] = welch(blocks[:len(y[0])], blocks[len(y[0]):], i)
	}
	return list
}

// welch compares one figure of unequally noisy blocks.
func welch(a, b [][]float64, i int) apart {
	var c apart
	ma, va, na := moments(a, i)
	mb, vb, nb := moments(b, i)
	c.na, c.nb, c.mean = na, nb, mb-ma
	if na < 2 || nb < 2 {
		return c
	}
	ea, eb := max(leastVariance, va)/float64(na), max(leastVariance, vb)/float64(nb)
	c.error = math.Sqrt(ea + eb)
	c.df = (ea + eb) * (ea + eb) / (ea*ea/float64(na-1) + eb*eb/float64(nb-1))
	c.t = math.Abs(c.mean) / c.error
	return c
}

// moments are the mean, the variance and the number of what is present.
func moments(rows [][]float64, i int) (mean, variance float64, n int) {
	squares := 0.0
	for _, row := range rows {
		if v := row[i]; v == v {
			n++
			d := v - mean
			mean += d / float64(n)
			squares += d * (v - mean)
		}
	}
	return mean, squares / float64(max(1, n-1)), n
}

// relabel gives for each figure the share of arrangements whose largest t is no
// smaller than its own. Arrangements are all choices of the blocks that are
// called A's, or, if those are too many, exchanges of blocks between pairs of one
// block of A and one of B.
func (y runTable) relabel(list []apart, bound Arrangements) []float64 {
	blocks := y.order()
	na, n := len(y[0]), len(blocks)
	reached, total := make([]int, len(list)), 0
	rows := make([][]float64, n)
	see := func(order []int) {
		for i, from := range order {
			rows[i] = blocks[from]
		}
		largest := 0.0
		for _, c := range y.contrasts(rows) {
			largest = max(largest, c.t)
		}
		total++
		for i, c := range list {
			if largest >= c.t*(1-1e-9) {
				reached[i]++
			}
		}
	}
	if combin.GeneralizedBinomial(float64(n), float64(na)) <= float64(bound.Exact) {
		choices(n, na, see)
	} else {
		bound.exchanges(na, n-na, see)
	}
	p := make([]float64, len(list))
	for i := range p {
		p[i] = float64(reached[i]) / float64(total)
	}
	return p
}

// choices calls see with an order of n numbers for each choice of the first na.
func choices(n, na int, see func(order []int)) {
	chosen := combin.NewCombinationGenerator(n, na)
	order := make([]int, n)
	for chosen.Next() {
		chosen.Combination(order[:na])
		slices.Sort(order[:na])
		rest := order[:na]
		for i, at := 0, na; i < n; i++ {
			if !slices.Contains(rest, i) {
				order[at] = i
				at++
			}
		}
		see(order)
	}
}

// exchanges calls see with orders that exchange the i-th of na numbers with the
// i-th of nb further ones, or not.
func (a Arrangements) exchanges(na, nb int, see func(order []int)) {
	pairs := min(na, nb)
	rows := make([][]float64, pairs)
	two := make([]int, pairs)
	for i := range rows {
		rows[i], two[i] = []float64{float64(i), float64(na + i)}, 2
	}
	order := identity(na + nb)
	a.rotationsOf(two).each(rows, func(turned [][]float64) {
		for i, row := range turned {
			order[i], order[na+i] = int(row[0]), int(row[1])
		}
		see(order)
	})
}

// rankSum is by what share b is greater than a, by the middle of all ratios,
// with the interval of the rank-sum test: exact if both spread alike.
func rankSum(a, b []float64, level float64) (float64, Interval) {
	if len(a) == 0 || len(b) == 0 {
		return 0, Interval{}
	}
	var d []float64
	for _, x := range a {
		for _, y := range b {
			d = append(d, y-x)
		}
	}
	slices.Sort(d)
	p := mannWhitney(len(a), len(b))
	best, tail := Interval{d[0], d[len(d)-1], 1 - 2*p[0]}, 0.0
	for r := range len(d) / 2 {
		tail += p[r]
		i := Interval{d[r], d[len(d)-1-r], 1 - 2*tail}
		if !i.Reaches(level) {
			break
		}
		best = i
	}
	best.Level = max(0, best.Level)
	return math.Expm1(middle(d)), shares(best)
}

// mannWhitney is the distribution of how many of the pairs of n and m numbers
// have the second one smaller.
func mannWhitney(n, m int) []float64 {
	// ways[j][u]: of i numbers of the first kind and j of the second.
	ways := make([][]float64, m+1)
	for j := range ways {
		ways[j] = make([]float64, n*m+1)
		ways[j][0] = 1
	}
	for i := 1; i <= n; i++ {
		for j := 1; j <= m; j++ {
			// The greatest number is of the first kind, above j of the second, or
			// it is of the second.
			next := make([]float64, n*m+1)
			for u := range next {
				next[u] = ways[j-1][u] * float64(j) / float64(i+j)
				if u >= j {
					next[u] += ways[j][u-j] * float64(i) / float64(i+j)
				}
			}
			ways[j] = next
		}
	}
	return ways[m]
}
