// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"strings"
)

// Join makes one competitor of several that are the same by definition: in each
// block the geometric mean of their figures, where all were measured.
func Join(series []Series) Series {
	var out Series
	var names []string
	for i, s := range series {
		names = append(names, s.Name)
		out.Out = append(out.Out, s.Out...)
		out.Rounding += s.Rounding / float64(len(series))
		for b, v := range s.Values {
			if i == 0 {
				out.Values = append(out.Values, 0)
			}
			if b < len(out.Values) {
				out.Values[b] += math.Log(v) / float64(len(series))
			}
		}
		out.Values = out.Values[:min(len(out.Values), len(s.Values))]
	}
	for b := range out.Values {
		out.Values[b] = math.Exp(out.Values[b])
	}
	out.Name = strings.Join(names, "=")
	return out
}
