// SPDX-License-Identifier: Apache-2.0

package stats

import "math"

// underRounding is the name of the objection that figures are rounded.
const underRounding = "rounding"

// round allows for figures that were printed with few digits. They may be equal,
// or differ, by their rounding alone, which blocks do not show: it is the same in
// all of them. A pair's joint interval becomes wider by what rounding may have
// done to both competitors, and a difference that it then does not exclude is not
// claimed.
func (v *Verdict) round(in []Series) {
	bound := map[string]float64{}
	for _, s := range in {
		bound[s.Name] = s.Rounding
	}
	for i := range v.Pairs {
		p := &v.Pairs[i]
		both := bound[p.A] + bound[p.B]
		if both <= 0 {
			continue
		}
		p.Joint.Low = (1+p.Joint.Low)*math.Exp(-both) - 1
		p.Joint.High = (1+p.Joint.High)*math.Exp(both) - 1
		if p.Joint.Low <= 0 && p.Joint.High >= 0 {
			if p.PVariants == nil {
				p.PVariants = map[string]float64{}
			}
			p.P, p.PVariants[underRounding] = 1, 1
		}
	}
}

// RoundingOf is Series.Rounding of figures, by how far from the truth rounding
// may have brought each, in its unit.
func RoundingOf(values, most []float64) float64 {
	sum, n := 0.0, 0
	for i, x := range values {
		if math.IsNaN(x) || x <= 0 || i >= len(most) {
			continue
		}
		n++
		// The truth may be smaller by as much, which is the farther in logarithms.
		sum -= math.Log1p(-min(most[i]/x, 0.999))
	}
	return sum / float64(max(1, n))
}
