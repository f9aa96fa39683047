// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A difference that late runs make is not claimed, and neither is one that only
// their absence makes.
func TestClaimsHoldInVariants(t *testing.T) {
	w := world{2, 14, normal, same(0.02), same(0), 0, 0}
	for _, c := range []struct {
		name  string
		shift float64 // of all runs of the second competitor
		late  float64 // of its late runs, further
		n     int     // of late runs
		want  Finding
	}{
		{"none late", 0.3, 0, 0, Different},
		{"both", 0.3, 0, 4, Different},
		{"only the late ones differ", 0, 0.5, 7, Unclear},
		{"too few remain", 0.3, 0, 10, Unclear},
		{"without them the opposite", -0.5, 2, 6, Unclear},
		{"none remains", 0.3, 0, 14, Unclear},
	} {
		s := w.study(rand.New(rand.NewPCG(1, 2)))
		onTime := Variant{"on time", []Series{s[0], {Name: s[1].Name}}}
		for b := range s[1].Values {
			f, v := c.shift, math.NaN()
			if b < c.n {
				f += c.late
			}
			s[1].Values[b] *= 1 + f
			if b >= c.n {
				v = s[1].Values[b]
			}
			onTime.Series[1].Values = append(onTime.Series[1].Values, v)
		}
		p := Judge(s, NewQuestion(true), onTime).Pairs[0]
		if _, asked := p.PVariants["on time"]; p.Finding != c.want || !asked {
			t.Errorf("%s: %+v", c.name, p)
		}
		if p.Finding == Unclear && (p.Joint.Low > 0 || p.Joint.High < 0) {
			t.Errorf("%s: no difference is claimed, and the interval is %s", c.name, p.Joint)
		}
	}
}

// Equality is a claim too: where a variant has too few blocks of a pair, the
// interval of all runs alone does not make the pair equal.
func TestEqualHoldsInVariants(t *testing.T) {
	w := world{2, 14, normal, same(0.001), same(0), 0, 0}
	for late, want := range map[int]Finding{0: Equal, 4: Equal, 10: Unclear, 14: Unclear} {
		s := w.study(rand.New(rand.NewPCG(1, 2)))
		onTime := Variant{"on time", []Series{s[0], {Name: s[1].Name, Values: slices.Clone(s[1].Values)}}}
		for b := range late {
			onTime.Series[1].Values[b] = math.NaN()
		}
		v := Judge(s, NewQuestion(true), onTime)
		if v.Pairs[0].Finding != want || (v.Outcome == AllEqual) != (want == Equal) {
			t.Errorf("%d of 14 runs late: %s, %+v", late, v.Outcome, v.Pairs[0])
		}
	}
}
