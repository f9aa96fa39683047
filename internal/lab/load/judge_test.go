// SPDX-License-Identifier: Apache-2.0

package load

import "testing"

// Late is what is much, and much of what is measured.
func TestLateness(t *testing.T) {
	for _, c := range []struct {
		late, response float64 // 99th percentiles, ms
		behind         bool
	}{
		{9, 12, false}, {11, 12, true}, {11, 200, true}, {11, 300, false}, {60, 1000, true}, {40, 1000, false}, {11, 0, true},
	} {
		r := Result{IssuedRate: 100, OfferedRate: 100}
		r.Generator.Lateness.P99MS, r.Response.P99MS = c.late, c.response
		if r.Judge(); r.Generator.Behind != c.behind {
			t.Errorf("%g ms late of %g: behind %v, want %v", c.late, c.response, r.Generator.Behind, c.behind)
		}
	}
}
