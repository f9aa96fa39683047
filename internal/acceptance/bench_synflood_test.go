// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"encoding/json"
	"testing"

	"imbang/internal/lab/bench"
)

// A small flood, of seconds: with the defence most of it opens nothing, and
// nothing of what honest clients do is lost.
func TestBenchSynFlood(t *testing.T) {
	needRoot(t)
	got := imbang(t, nil, "", "bench", "synflood", "--rate", "20000", "--duration", "4s", "--rounds", "1",
		"--established", "10", "--requests", "50", "--new", "10", "--max-connections", "32768", "--output", "json")
	var r bench.SynFloodResult
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, got.stderr)
	}
	if (got.status == 0) != r.Defended || len(r.Policies) != 3 {
		t.Fatalf("status %d: %+v", got.status, r)
	}
	for _, p := range r.Policies {
		syns := 4 * p.Rate.Median
		if p.Requests < 50 || p.Newcomers < 5 || syns < 4000 {
			t.Errorf("%s: %+v", p.Name, p)
		}
		// The slower the machine, the later the defence's beginning.
		if p.Name == "syn_defence" && (p.Lost > 0 || p.Succeeded < p.Newcomers*9/10 || p.ConnectP50.Median <= 0 || p.Reached.Median > syns*2/3) {
			t.Errorf("with the defence: %+v", p)
		}
		if p.Name == "none" && p.Reached.Median < 4000 {
			t.Errorf("without: %+v", p)
		}
	}
	got = imbang(t, nil, "", "bench", "synflood", "--kind", "udp", "--rate", "20000", "--duration", "4s", "--rounds", "1",
		"--established", "10", "--requests", "50", "--new", "10", "--max-connections", "32768", "--output", "json")
	r = bench.SynFloodResult{}
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, got.stderr)
	}
	if (got.status == 0) != r.Defended || len(r.Policies) != 1 {
		t.Fatalf("status %d: %+v", got.status, r)
	}
	// Datagrams fill the table, so it is a flood.
	if p := r.Policies[0]; p.Requests < 50 || p.OthersTried < 5 || p.Newcomers != 0 || p.Flows != 10 || p.Connections.Median < 16384 {
		t.Errorf("%+v", p)
	}
	for _, bad := range [][]string{{"--rate", "0"}, {"--kind", "icmp"}, {"--established", "501"}, {"--duration", "1ms"}} {
		if got := imbang(t, nil, "", append([]string{"bench", "synflood"}, bad...)...); got.status != 2 {
			t.Errorf("%v: status %d", bad, got.status)
		}
	}
}
