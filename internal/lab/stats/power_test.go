// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// stalling is normal noise with so many runs that are far off.
func stalling(share float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 {
		v := r.NormFloat64()
		if r.Float64() < share {
			v += 20
		}
		return v
	}
}

// The power stated is that of the verdicts, within 5 points.
func TestPowerIsThatOfTheVerdicts(t *testing.T) {
	for _, d := range []Design{
		{2, 7, 0.05 / 3, 0.03, 0}, {2, 8, 0.05, 0.10, 0}, {2, 20, 0.05 / 3, 0.10, 0.05},
		{3, 6, 0.05 / 3, 0.10, 0}, {4, 10, 0.05 / 3, 0.10, 0.02}, {6, 6, 0.05 / 3, 0.03, 0},
		{10, 5, 0.05 / 3, 0.03, 0}, {10, 8, 0.05 / 3, 0.10, 0.05},
	} {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			t.Parallel()
			difference := d.Detects()
			if math.IsInf(difference, 0) {
				t.Fatal("no difference is found")
			}
			power := d.Power(difference)
			w := world{d.Competitors, d.Blocks, stalling(d.Stalls), same(d.Noise), firstOf(1, -math.Log1p(difference), 0), 0.1, 0}
			rng := rand.New(rand.NewPCG(21, 22))
			q := NewQuestion(true)
			q.Alpha = d.Alpha
			q.Arrangements = Arrangements{Exact: 1 << 12, Rotations: 1 << 13}
			studies, found := 1000, 0
			if d.Competitors > 4 {
				studies = 400
			}
			for range studies {
				for _, p := range Judge(w.study(rng), q).Pairs {
					if p.A == "0" && p.B == "1" && p.Finding == Different {
						found++
					}
				}
			}
			got := float64(found) / float64(studies)
			t.Logf("%.1f %%: stated %.3f, found %.3f", 100*difference, power, got)
			if math.Abs(power-DesignPower) > 0.01 || math.Abs(got-power) > 0.05 {
				t.Errorf("%.1f %%: stated %.3f, found in %.3f of the studies", 100*difference, power, got)
			}
		})
	}
}

func TestNeeded(t *testing.T) {
	for _, c := range []struct {
		k     int
		alpha float64
		want  int
	}{{2, 0.05, 6}, {2, 0.05 / 3, 7}, {3, 0.05, 6}, {4, 0.05, 7}, {2, 0.001, 11}} { // 2/2^11 < 0.001
		if got := Needed(c.k, c.alpha); got != c.want {
			t.Errorf("%d competitors at %g: %d, want %d", c.k, c.alpha, got, c.want)
		}
	}
	d := Design{Competitors: 2, Alpha: 0.05 / 3, Noise: 0.10}
	d.Blocks = d.BlocksFor(0.10)
	if d.Blocks < 15 || d.Power(0.10) < DesignPower {
		t.Errorf("10 %% at a noise of 10 %%: %d blocks, power %.2f", d.Blocks, d.Power(0.10))
	}
	d.Blocks--
	if d.Power(0.10) >= DesignPower+0.02 {
		t.Errorf("one block fewer: power %.2f", d.Power(0.10))
	}
}

// Of two competitors the one that is better in every block is claimed to be, at
// the number of blocks that is said to be needed.
func TestPerfectSeparationIsClaimed(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, alpha := range []float64{0.05, 0.05 / 3, 0.01, 0.001} {
		q := NewQuestion(true)
		q.Alpha = alpha
		for range 300 {
			a, b := Series{Name: "a"}, Series{Name: "b"}
			for range Needed(2, alpha) {
				a.Values, b.Values = append(a.Values, 1+0.1*rng.Float64()), append(b.Values, 1.25+0.1*rng.Float64())
			}
			if v := Judge([]Series{b, a}, q); v.Outcome != Winner || v.Ranking[0] != "a" {
				t.Fatalf("alpha %g, %v against %v: %+v", alpha, a.Values, b.Values, v)
			}
		}
	}
}

// The verdict depends on nothing but the figures: not on the order in which the
// competitors are listed, and there is no seed.
func TestEqualDataGiveEqualVerdicts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for k := 2; k <= 10; k++ {
		q := NewQuestion(true)
		q.Arrangements = few
		for range 30 {
			s := world{k, Needed(k, q.Alpha) + rng.IntN(3), longTails, same(0.05), firstOf(k/2, -0.1, 0), 0, 0}.study(rng)
			v := Judge(s, q)
			rng.Shuffle(k, func(i, j int) { s[i], s[j] = s[j], s[i] })
			w := Judge(s, q)
			for _, p := range v.Pairs {
				a, b := p.A, p.B
				same := false
				for _, x := range w.Pairs {
					same = same || x.A == a && x.B == b && x.P == p.P && x.Finding == p.Finding
				}
				if !same {
					t.Fatalf("%d competitors: %s against %s differs in another order", k, a, b)
				}
			}
		}
	}
}
