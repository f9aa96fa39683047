// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
)

// A proxy that adds a header carries more bytes and no more requests: in an open
// loop that carries less than is asked, replies are judged.
func TestRepliesAreJudgedAndNotBytes(t *testing.T) {
	rep := made{load: "rates: [1000], duration: 2 s", blocks: 8,
		competitors: "  - {engine: imbang, schedulers: [rr]}\n  - {engine: nginx-http, schedulers: [rr]}",
		result: func(c record.Cell, _ int) *load.Result {
			r := clean(c, 1, 5, 0.9)
			if c.Engine == "nginx-http" {
				r.NetIOKBs *= 1.03
			}
			return r
		}}.report(t)
	row := rep.Sections[0].Rows[0]
	if _, judged := row.Comparisons["throughput"]; judged {
		t.Errorf("bytes are judged: %+v", row.Comparisons["throughput"])
	}
	if p := row.Comparisons["reply_rate"].Pairs; len(p) != 1 || p[0].Finding != stats.Equal {
		t.Errorf("%+v", p)
	}
}
