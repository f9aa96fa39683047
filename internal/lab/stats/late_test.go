// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math/rand/v2"
	"testing"
)

// A difference that late runs make is not claimed, and neither is one that only
// their absence makes.
func TestClaimsHoldWithAndWithoutLateRuns(t *testing.T) {
	q := NewQuestion(true)
	w := world{2, 14, normal, same(0.02), same(0), 0, 0}
	for _, c := range []struct {
		name  string
		shift float64 // of all runs of the second competitor
		late  float64 // of its late runs, further
		n     int     // of late runs
		want  Finding
	}{
		{"both", 0.3, 0, 4, Different},
		{"only the late ones differ", 0, 0.5, 7, Unclear},
		{"too few remain", 0.3, 0, 10, Unclear},
		{"without them the opposite", -0.5, 2, 6, Unclear},
	} {
		s := w.study(rand.New(rand.NewPCG(1, 2)))
		s[1].Late = make([]bool, 14)
		for b := range s[1].Values {
			f := c.shift
			if b < c.n {
				s[1].Late[b] = true
				f += c.late
			}
			s[1].Values[b] *= 1 + f
		}
		v := Judge(s, q)
		p := v.Pairs[0]
		if v.Late != c.n || p.Finding != c.want || p.POnTime == nil {
			t.Errorf("%s: %d late, %+v", c.name, v.Late, p)
		}
		if p.Finding == Unclear && (p.Joint.Low > 0 || p.Joint.High < 0) {
			t.Errorf("%s: no difference is claimed, and the interval is %s", c.name, p.Joint)
		}
	}
}
