// SPDX-License-Identifier: Apache-2.0

package page

import "testing"

func TestTidy(t *testing.T) {
	for in, want := range map[string]string{
		"lc has +96.4 % (-67.6 % to +132 %)":     "lc has +96.4\u00a0% (−67.6\u00a0% to +132\u00a0%)",
		"at 60 % of capacity (901/s), layer-4":   "at 60\u00a0% of capacity (901/s), layer-4",
		"3 servers in 5 s.":                      "3 servers in 5\u00a0s.",
		"5 ms 6 ms":                              "5\u00a0ms 6\u00a0ms",
		"a run of 2026-11-23, imbang-tc, -c 100": "a run of 2026-11-23, imbang-tc, -c 100",
	} {
		if got := tidy(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
