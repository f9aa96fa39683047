// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
)

func TestCompetitorsWithDifferentWeights(t *testing.T) {
	const cluster = "client_namespaces: 2, client_addresses: 400, weights: {equal: [1, 1, 1], capacity: [4, 2, 2]}"
	for name, tc := range map[string]struct{ competitors, want string }{
		"set": {"  - {engine: imbang, schedulers: [wrr], weights: capacity}\n  - {engine: nginx-http, schedulers: [rr], weights: equal}",
			"(nginx-http rr by 1:1:1; imbang wrr capacity by 2:1:1)"},
		// rr ignores the weights that it is given.
		"scheduler": {"  - {engine: imbang, schedulers: [rr, wrr], weights: capacity}", "(rr capacity by 1:1:1; wrr capacity by 2:1:1)"},
		"same":      {"  - {engine: imbang, schedulers: [wrr], weights: capacity}\n  - {engine: nginx-http, schedulers: [rr], weights: capacity}", ""},
		"yardstick": {"  - {engine: imbang, schedulers: [wrr], weights: capacity}\n  - {engine: direct}", ""},
		"fewer":     {"  - {engine: nginx-http, schedulers: [rr], weights: capacity, servers: [2, 3]}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rep := made{cluster: cluster, load: rates, competitors: tc.competitors, blocks: 7, result: func(c record.Cell, block int) *load.Result {
				return clean(c, 1, 5, 1)
			}}.report(t)
			if tc.want == "" {
				if len(rep.Caveats) > 0 {
					t.Errorf("%+v, want none", rep.Caveats)
				}
				return
			}
			wants(t, text(t, rep), "competitors distribute requests by different weights "+tc.want+": differences between them may be due to the weights.\n")
		})
	}
}
