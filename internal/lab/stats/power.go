// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// Design is what is known of a study before it is run.
type Design struct {
	Competitors, Blocks int
	// Alpha is the probability, at most, of any false claim about one metric.
	Alpha float64
	// Noise is the standard deviation of the logarithm of a figure within a
	// block, about its coefficient of variation.
	Noise float64
	// Stalls is the share of runs that the machine stops for so long that their
	// figures are far off.
	Stalls float64
}

// DesignPower is the probability with which a study finds a difference that it
// is said to find.
const DesignPower = 0.80

// The reference: one competitor differs by a share of ReferenceDifference from
// all others, and figures vary by ReferenceNoise.
const (
	ReferenceDifference = 0.10
	ReferenceNoise      = 0.03
)

// Needed is the number of blocks from which on the reference difference is
// claimed with a probability of 80 %, among k competitors.
func Needed(k int, alpha float64) int {
	return Design{Competitors: k, Alpha: alpha, Noise: ReferenceNoise}.BlocksFor(ReferenceDifference)
}

// Power is the probability that a pair is claimed to differ whose second
// competitor is greater by a share, in a study in which the first one differs
// from all others by as much.
func (d Design) Power(difference float64) float64 {
	if d.Blocks < leastFor(d.Competitors, d.Alpha) {
		return 0
	}
	n, list := 0, d.thresholds()
	for _, t := range list {
		if t.at(d.Noise) <= math.Log1p(difference) {
			n++
		}
	}
	return float64(n) / float64(len(list))
}

// Detects is the least difference that is claimed with a probability of 80 %,
// as a share, infinite if there is none.
func (d Design) Detects() float64 {
	if d.Blocks < leastFor(d.Competitors, d.Alpha) {
		return math.Inf(1)
	}
	var all []float64
	for _, t := range d.thresholds() {
		all = append(all, t.at(d.Noise))
	}
	slices.Sort(all)
	return math.Expm1(all[int(math.Ceil(DesignPower*float64(len(all))))-1])
}

// BlocksFor is the number of blocks from which on a difference is claimed with
// a probability of 80 %; 0 if more than a thousand are needed.
func (d Design) BlocksFor(difference float64) int {
	const most = 1000
	enough := func(n int) bool {
		d.Blocks = n
		return d.Power(difference) >= DesignPower
	}
	low := leastFor(d.Competitors, d.Alpha) // the answer is low or more
	high := low
	for !enough(high) {
		if high >= most {
			return 0
		}
		low = high + 1
		// Intervals narrow by the square root of the blocks.
		ratio := math.Log1p(d.Detects()) / math.Log1p(difference)
		high = min(most, max(low, int(1.1*min(16, ratio*ratio)*float64(high))))
	}
	for low < high {
		if n := (low + high) / 2; enough(n) {
			high = n
		} else {
			low = n + 1
		}
	}
	return high
}

// threshold is the least difference of logarithms that one simulated study
// claims.
type threshold struct {
	units float64 // that both tests allow, in units of the noise
	error float64 // of the estimate, in units of the noise
}

// at is the threshold at a noise. An estimate below what is of interest is no
// claim.
func (t threshold) at(noise float64) float64 {
	smallest := math.Log1p(NewQuestion(false).Smallest)
	return max(t.units*noise, smallest-t.error*noise)
}

// known keeps the thresholds of designs: they do not depend on the noise.
var known sync.Map

// thresholds simulates studies of the design, the same ones each time.
func (d Design) thresholds() []threshold {
	d.Noise = 0
	if list, ok := known.Load(d); ok {
		return list.([]threshold)
	}
	studies := 1000
	if d.Competitors > 4 {
		studies = 400 // each takes milliseconds
	}
	rng := rand.New(rand.NewPCG(uint64(d.Competitors), uint64(d.Blocks)))
	list := make([]threshold, studies)
	for i := range list {
		list[i] = d.simulate(rng)
	}
	known.Store(d, list)
	return list
}

// stall is by how much a stalled run is off, in units of the noise.
const stall = 20

// simulate draws one study and finds the difference from which on the first two
// competitors are claimed to differ.
func (d Design) simulate(rng *rand.Rand) threshold {
	y := make([][]float64, d.Blocks)
	for b := range y {
		y[b] = make([]float64, d.Competitors)
		for i := range y[b] {
			y[b][i] = rng.NormFloat64()
			if rng.Float64() < d.Stalls {
				y[b][i] += stall
			}
		}
	}
	list := contrasts(y, nil)
	pair := list[0] // a shift changes means, and no variance
	student := studentPoint(d.Alpha/float64(len(list)), pair.df)*pair.standardError() - pair.mean
	error, _ := hodgesLehmann(walsh(differences(y, 0, 1)), signedRank(d.Blocks), d.Blocks, 0.5)
	return threshold{d.relabelled(y, student), error}
}

// relabelled is the least shift, from a given one on, that the relabelling test
// claims, to a twentieth of the noise.
func (d Design) relabelled(y [][]float64, from float64) float64 {
	a := Arrangements{Exact: 1 << 10, Rotations: 1 << 10}
	z := make([][]float64, len(y))
	claims := func(shift float64) bool {
		for b, row := range y {
			z[b] = append(z[b][:0], row...)
			z[b][0] -= shift
		}
		return byRelabelling(z, contrasts(z, nil), a)[0] <= d.Alpha
	}
	if claims(from) {
		return from
	}
	low, step := from, 0.25
	for !claims(low + step) {
		if low, step = low+step, 2*step; step > 1e4 {
			return math.Inf(1)
		}
	}
	for step > 0.05 {
		if step /= 2; !claims(low + step) {
			low += step
		}
	}
	return low + step
}
