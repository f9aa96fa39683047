// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"math/rand/v2"
	"testing"

	"imbang/internal/testenv"
)

// Zipf's law, and the uniform one of exponent 0.
func TestPopularity(t *testing.T) {
	for _, exponent := range []float64{0, 0.8, 1, 2} {
		const n, draws = 50, 1_000_000
		p := newPopularity(n, exponent, rand.New(rand.NewPCG(1, 2)))
		count := make([]float64, n)
		for range draws {
			count[p.draw()]++
		}
		total := 0.0
		for k := range n {
			total += math.Pow(float64(k+1), -exponent)
		}
		for _, k := range []int{0, 1, 9, 49} {
			want := draws * math.Pow(float64(k+1), -exponent) / total
			if math.Abs(count[k]-want) > 6*math.Sqrt(want) {
				t.Errorf("exponent %g: the %d. was drawn %g times, want %g", exponent, k+1, count[k], want)
			}
		}
	}
}

// Textbooks' numbers.
func TestTheory(t *testing.T) {
	testenv.Near(t, "M/M/1", mm1(0.5, 1), 2, 1e-12)
	testenv.Near(t, "M/D/1", md1(0.5, 1), 1.5, 1e-12)
	testenv.Near(t, "M/M/c of one server", mmc(0.5, 1, 1), 2, 1e-12)
	testenv.Near(t, "M/M/2", mmc(1, 1, 2), 4.0/3, 1e-12)
	testenv.Near(t, "Erlang-1/M/1", em1(0.5, 1, 1), 2, 1e-9)
	testenv.Near(t, "Erlang's B of 2 servers, 2 Erlang", erlangB(2, 1, 2), 0.4, 1e-12)
}

func TestEstimate(t *testing.T) {
	e := estimate([]float64{1, 2, 3})
	testenv.Near(t, "the mean", e.Mean, 2, 1e-12)
	testenv.Near(t, "the half width", e.HalfWidth, 4.303/math.Sqrt(3), 1e-3) // Student's t of 2 degrees
	if one := estimate([]float64{5}); one.HalfWidth != 0 || one.Mean != 5 {
		t.Errorf("of one sample: %+v", one)
	}
	testenv.Near(t, "Student's quantile of 60", student(60), 2.0003, 1e-3)
}

func TestJain(t *testing.T) {
	testenv.Near(t, "of equal loads", jain([]float64{2, 2, 2}), 1, 1e-12)
	testenv.Near(t, "of one that has all", jain([]float64{7, 0, 0, 0}), 0.25, 1e-12)
	testenv.Near(t, "of nothing", jain([]float64{0, 0}), 1, 1e-12)
}

func TestCacheKeepsTheLatest(t *testing.T) {
	c := newCache(2)
	for i, step := range []struct {
		destination int
		hit         bool
	}{{1, false}, {2, false}, {1, true}, {3, false}, {2, false}, {3, true}} {
		if hit := c.use(step.destination); hit != step.hit {
			t.Errorf("step %d: destination %d at hand: %v, want %v", i, step.destination, hit, step.hit)
		}
	}
}

func TestFifoWrapsAround(t *testing.T) {
	var f fifo
	next, want := int32(0), int32(0)
	for round := range 100 {
		for range round % 7 {
			f.push(next)
			next++
		}
		for range round % 5 {
			got, ok := f.pop()
			if !ok {
				break
			}
			if got != want {
				t.Fatalf("popped %d, want %d", got, want)
			}
			want++
		}
	}
	if f.len() != int(next-want) {
		t.Errorf("%d wait, want %d", f.len(), next-want)
	}
}
