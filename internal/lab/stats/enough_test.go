// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// upTo is what has been measured after so many blocks.
func upTo(series []Series, blocks int) []Series {
	out := make([]Series, len(series))
	for i, s := range series {
		out[i] = Series{Name: s.Name, Values: s.Values[:blocks]}
	}
	return out
}

// A study that ends when its intervals are narrow claims no more that is false
// than one whose length is fixed. One that ended at the first claim would.
func TestEndingByWidthKeepsTheErrorRate(t *testing.T) {
	for name, c := range map[string]struct {
		w      world
		target Target
	}{
		"A/A":         {world{2, 30, normal, same(0.03), same(0), 0.1, 0}, Target{0.03, 6, 30, 0.05}},
		"A/A, narrow": {world{2, 30, normal, same(0.03), same(0), 0.1, 0}, Target{0.02, 6, 30, 0.05}},
		"A/A, spikes": {world{2, 30, spikes, same(0.03), same(0), 0.1, 0}, Target{0.03, 6, 30, 0.05}},
		"four equals": {world{4, 24, normal, same(0.03), same(0), 0, 0}, Target{0.04, 5, 24, 0.05}},
		"three fast":  {world{6, 24, normal, same(0.03), firstOf(3, -0.3, 0), 0, 0}, Target{0.05, 5, 24, 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const studies, rate = 1000, 0.05
			rng := rand.New(rand.NewPCG(3, 5))
			q := NewQuestion(true)
			q.Arrangements = few
			wrong, early, blocks := 0, 0, 0
			for range studies {
				s := c.w.study(rng)
				n := c.target.Least
				for ; ; n++ {
					if ok, _ := c.target.Enough(upTo(s, n)); ok {
						break
					}
				}
				blocks += n
				if n < c.target.Most {
					early++
				}
				if c.w.errs(Judge(upTo(s, n), q)) {
					wrong++
				}
			}
			got := float64(wrong) / studies
			t.Logf("%.4f false, %.1f blocks, %d of %d ended early", got, float64(blocks)/studies, early, studies)
			if limit := rate + 3*math.Sqrt(rate*(1-rate)/studies); got > limit {
				t.Errorf("a false claim in %.4f of the studies, want at most %.3f (%.4f by chance)", got, rate, limit)
			}
		})
	}
}

func TestEnoughSaysWhy(t *testing.T) {
	w := world{3, 40, normal, same(0.03), firstOf(1, -0.5, 0), 0, 0}
	s := w.study(rand.New(rand.NewPCG(1, 2)))
	target := Target{0.05, 5, 30, 0.05}
	for _, c := range []struct {
		blocks int
		target Target
		want   bool
		reason string
	}{
		{4, target, false, "4 of at least 9 blocks"},
		{9, Target{0.01, 5, 30, 0.05}, false, "the widest interval, of "},
		{20, target, true, "target +-5.0 %"},
		{30, Target{0.001, 5, 30, 0.05}, true, "the most blocks, 30, are measured"},
	} {
		got, reason := c.target.Enough(upTo(s, c.blocks))
		if got != c.want || !strings.Contains(reason, c.reason) {
			t.Errorf("%d blocks: %v, %s; want %v, %s", c.blocks, got, reason, c.want, c.reason)
		}
	}
	if got, _ := target.Enough(s[:1]); !got {
		t.Error("goes on for one competitor")
	}
}

// What the study shows does not end it: shifting a competitor changes nothing.
func TestEnoughDoesNotLookAtDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	target := Target{0.04, 5, 40, 0.05}
	for range 50 {
		s := world{3, 14, normal, same(0.03), same(0), 0, 0}.study(rng)
		before, _ := target.Enough(s)
		for b := range s[0].Values {
			s[0].Values[b] *= 3
		}
		if after, _ := target.Enough(s); after != before {
			t.Fatal("a difference changed the decision")
		}
	}
}
