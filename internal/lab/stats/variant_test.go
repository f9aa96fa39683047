// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
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
