// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"imbang/internal/lab/bench"
	"imbang/internal/lab/stats"
)

var (
	before       = flag.String("before", "", "imbang-lab of a build before synchronization, to compare the data plane with")
	beforeCommit = flag.String("before-commit", "", "its commit")
	beforeRounds = flag.Int("before-rounds", 7, "rounds: each build once a round")
)

// packetsChange is what the packets of one workload cost in two builds.
type packetsChange struct {
	Name         string        `json:"name"`
	Commit       string        `json:"commit"`
	BeforeCommit string        `json:"before_commit"`
	Rounds       int           `json:"rounds"`
	Before       stats.Summary `json:"before_ns"` // of a packet
	After        stats.Summary `json:"after_ns"`
	Change       share         `json:"change_percent"` // of the rounds' differences
}

// TestMeasureSwitchedOff measures the data plane without synchronization beside that of a build
// before it, in turns: by the programs alone, as imbang-lab bench packets does.
func TestMeasureSwitchedOff(t *testing.T) {
	needRoot(t)
	if *before == "" {
		t.Skip("-before is not given")
	}
	builds := []string{*before, labExecutable()}
	samples := map[string][2][]float64{}
	var names []string
	for round := range *beforeRounds {
		for turn := range builds {
			i := (round + turn) % len(builds)
			for name, ns := range packetCosts(t, builds[i]) {
				all := samples[name]
				if all[0] == nil && all[1] == nil {
					names = append(names, name)
				}
				all[i] = append(all[i], ns)
				samples[name] = all
			}
		}
	}
	slices.Sort(names)
	var rows []packetsChange
	for _, name := range names {
		was, is := samples[name][0], samples[name][1]
		if len(was) != len(is) {
			t.Errorf("%s: one of the builds does not have it", name)
			continue
		}
		change := make([]float64, len(is))
		for i := range is {
			change[i] = 100 * (is[i] - was[i]) / was[i]
		}
		row := packetsChange{name, "", *beforeCommit, *beforeRounds, stats.Summarize(was), stats.Summarize(is), shareOf(change)}
		t.Logf("%s: %.1f ns, before %.1f: %+.1f %% (%+.1f to %+.1f)", name, row.After.Median, row.Before.Median, row.Change.Median, row.Change.Interval.Low, row.Change.Interval.High)
		rows = append(rows, row)
	}
	noteSync(t, func(all *syncResult, commit string) {
		for i := range rows {
			rows[i].Commit = commit
		}
		all.Off = rows
	})
}

// packetCosts are the workloads of imbang-lab bench packets [ns a packet].
func packetCosts(t *testing.T, lab string) map[string]float64 {
	t.Helper()
	args := []string{"bench", "packets", "--flows", "65536", "--schedulers", "rr", "--servers", "3", "--rounds", "5", "--packets", "50000", "-o", "json"}
	if lab != *before { // earlier builds have no other measures
		args = append(args, "--measures", "established,new")
	}
	out, err := exec.Command(lab, args...).Output()
	var r bench.PacketsResult
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatalf("%s: %v", lab, err)
	}
	costs := map[string]float64{}
	for _, c := range r.Established {
		costs[fmt.Sprintf("established, %d flows, %s", c.Flows, c.Path)] = c.NS.Median
	}
	for _, c := range r.New {
		costs[fmt.Sprintf("new connection, %s", c.Path)] = c.NS.Median
	}
	return costs
}
