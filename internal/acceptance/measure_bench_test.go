// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"encoding/json"
	"strings"
	"testing"

	"imbang/internal/lab/bench"
)

// The stages of a packet's path: each is on the path of the packets that have it,
// and connections are inserted by new ones alone.
func TestBenchStages(t *testing.T) {
	needRoot(t)
	out := must(t, nil, "", "bench", "stages", "--packets", "1000", "--rounds", "1", "--flows", "64", "--output", "json")
	var r bench.StagesResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	costs := map[[3]string]bench.StageCost{}
	for _, c := range r.Costs {
		costs[[3]string{c.Path, c.Traffic, c.Stage}] = c
	}
	if len(r.Costs) != 2*3*9 || len(costs) != len(r.Costs) || r.Flows != 64 {
		t.Fatalf("%+v", r)
	}
	for _, path := range []string{"tc", "xdp"} {
		for _, traffic := range []string{"one", "many", "new"} {
			at := func(stage string) bench.StageCost { return costs[[3]string{path, traffic, stage}] }
			for _, stage := range []string{"parse", "find", "route", "rewrite", "program"} {
				// In one round of so few packets, noise may exceed what a single stage
				// takes: its time is what is left without the cost of marks.
				if c := at(stage); c.NS.N != 1 || stage == "program" && c.NS.Median <= 0 {
					t.Errorf("%+v", c)
				}
			}
			if c := at("find"); c.Lookups < 1 {
				t.Errorf("a connection is found without a look-up: %+v", c)
			}
			if c := at("rewrite"); c.Lookups > 0.5 {
				t.Errorf("a packet is rewritten by look-ups: %+v", c)
			}
			if c := at("open"); (c.Changes >= 1) != (traffic == "new") {
				t.Errorf("connections inserted: %+v", c)
			}
		}
	}
	if left := orphans(t); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	for _, args := range [][]string{{"--rounds", "0"}, {"--flows", "3"}, {"--packets", "1"}} {
		if got := imbang(t, nil, "", append([]string{"bench", "stages"}, args...)...); got.status != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// The comparison of whole paths with short samples: every competitor has every
// measure, but for plain forwarding the CPU time of balancing; all three servers
// take part, nothing is lost, and nothing is left behind.
func TestBenchPath(t *testing.T) {
	needRoot(t)
	out := must(t, nil, "", "bench", "path", "--rounds", "2", "--sittings", "2", "--seconds", "0.2", "--rate", "1000", "--megabytes", "2", "--output", "json")
	var r bench.PathResult
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Missing {
		if !strings.HasPrefix(m, "nftables-flowtable: not available") { // many kernels have none
			t.Fatal(m)
		}
	}
	if n := len(bench.PathCompetitors()) - len(r.Missing); len(r.Requests) != n || len(r.Rows) != 11*n+2*(n-1) || len(r.Targets) != 10 || r.Rate != 1000 || r.Rounds != 2 || r.Sittings != 2 {
		t.Fatalf("%+v", r)
	}
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Measure, "CPU of balancing") { // a difference, so it may be negative
			if row.Value.N != 2 || row.Competitor == "direct" || row.Over != nil {
				t.Errorf("%+v", row)
			}
			continue
		}
		if row.Value.N != 2 || row.Value.Median <= 0 || (row.Competitor != "direct") != (row.Over["direct"].N == 2) {
			t.Errorf("%+v", row)
		}
	}
	for _, l := range r.Requests {
		if l.Lost > 0 || l.Sent == 0 || len(l.Shares) != 3 {
			t.Errorf("%+v", l)
		}
	}
	if left := orphans(t); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	for _, args := range [][]string{{"--rounds", "0"}, {"--sittings", "0"}, {"--competitors", "ipvs"}, {"--seconds", "0.01"}} {
		if got := imbang(t, nil, "", append([]string{"bench", "path"}, args...)...); got.status != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
