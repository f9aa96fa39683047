// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// otherLevels says which published figures stand beside rates that are not the
// published ones.
func otherLevels(p record.Plan) []string {
	var pairs []string
	for _, c := range p.Conditions {
		pair := fmt.Sprintf("%g/s beside those of %g/s", c.Rate, c.Published)
		if c.Published > 0 && c.Published != c.Level() && !c.Closed() && !slices.Contains(pairs, pair) {
			pairs = append(pairs, pair)
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return []string{"the rates are not the published ones; measured figures stand in the order of rates: " + strings.Join(pairs, ", ")}
}

// setting describes the run in a few lines.
func setting(e record.Environment, s *study.Study, samples []record.Sample) []string {
	p := e.Plan
	length := "as many requests as the table says"
	switch {
	case p.Connections > 0:
		length = fmt.Sprintf("%d connections", p.Connections)
	case p.Duration > 0:
		length = p.Duration.String()
	case p.Replay != nil:
		length = "the whole log"
	}
	var programs []string
	for _, name := range slices.Sorted(maps.Keys(e.Programs)) {
		programs = append(programs, name+" "+e.Programs[name])
	}
	lines := []string{
		fmt.Sprintf("%s, %d CPUs (%s), Linux %s, %s", e.Started.UTC().Format("2006-01-02 15:04 UTC"),
			e.CPUs, e.CPU, e.Kernel, strings.Join(append(programs, "imbang "+e.Imbang), ", ")),
		fmt.Sprintf("%s a run after %v of warm-up, runs a cell: %d, in random order (seed %d), timeout %v",
			length, p.Warmup, p.Repeats, p.Seed, p.Timeout),
	}
	if p.Capacity != nil {
		lines = append(lines, p.Capacity.Lines()...)
	}
	if p.Replay != nil {
		lines = append(lines, p.Replay.Lines()...)
	}
	lines = append(lines, otherLevels(p)...)
	lines = append(lines, s.Choices()...)
	if slices.ContainsFunc(samples, func(s record.Sample) bool { return s.Load != nil && s.Load.Generator.Precedence }) {
		lines = append(lines, "the clients come before everything else on this machine, as if they had one of their own: what is short is the cluster")
	}
	var loop []float64
	for _, s := range samples {
		if s.CalibrationNS > 0 {
			loop = append(loop, s.CalibrationNS.Seconds()*1e3)
		}
	}
	if sum := stats.Summarize(loop); sum.N > 0 {
		lines = append(lines, fmt.Sprintf("the machine's speed over the run, by a fixed loop: %.2f ms (%.2f to %.2f)", sum.Median, sum.Min, sum.Max))
	}
	return lines
}
