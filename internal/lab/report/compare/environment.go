// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
)

// changes names what differs between the runs, other than what was measured.
func changes(a, b *record.Run) (list []Change) {
	note := func(what, x, y string) {
		if x != y {
			list = append(list, Change{what, orNone(x), orNone(y)})
		}
	}
	x, y := a.Environment, b.Environment
	note("study", x.Study, y.Study)
	if x.Study == y.Study && x.StudyText != y.StudyText {
		list = append(list, Change{"text of the study", "as stored", "another: " + firstDifference(x.StudyText, y.StudyText)})
	}
	note("imbang", x.Imbang, y.Imbang)
	note("Go", x.Go, y.Go)
	note("kernel", x.Kernel, y.Kernel)
	note("machine", x.Machine, y.Machine)
	note("CPU", x.CPU, y.CPU)
	note("CPUs", fmt.Sprint(x.CPUs), fmt.Sprint(y.CPUs))
	if d := x.MemoryKB - y.MemoryKB; d < -x.MemoryKB/100 || d > x.MemoryKB/100 {
		note("memory [MB]", fmt.Sprint(x.MemoryKB/1024), fmt.Sprint(y.MemoryKB/1024))
	}
	note("BPF statistics", x.BPFStats, y.BPFStats)
	maps2(x.Programs, y.Programs, note)
	maps2(x.Limits, y.Limits, note)
	for _, name := range slices.Sorted(maps.Keys(x.Configurations)) {
		if was, is := x.Configurations[name], y.Configurations[name]; is != "" && was != is {
			list = append(list, Change{"configuration of " + name, "as stored", "another: " + firstDifference(was, is)})
		}
	}
	plans(x.Plan, y.Plan, note)
	return append(list, speed(a, b)...)
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// maps2 notes what two tables do not have in common.
func maps2(a, b map[string]string, note func(what, x, y string)) {
	names := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		note(n, a[n], b[n])
	}
}

// plans notes what makes cells of one name different ones.
func plans(a, b record.Plan, note func(what, x, y string)) {
	note("connections a run", fmt.Sprint(a.Connections), fmt.Sprint(b.Connections))
	note("time of a run", a.Duration.String(), b.Duration.String())
	note("requests a connection", fmt.Sprint(a.PerConnection), fmt.Sprint(b.PerConnection))
	note("warm-up", a.Warmup.String(), b.Warmup.String())
	note("timeout", a.Timeout.String(), b.Timeout.String())
	note("quick", fmt.Sprint(a.Quick), fmt.Sprint(b.Quick))
	note("runs a cell", fmt.Sprint(a.Repeats), fmt.Sprint(b.Repeats))
	note("seed", fmt.Sprint(a.Seed), fmt.Sprint(b.Seed))
}

// worthTelling is by what share the machine's speed may differ in silence.
const worthTelling = 0.02

// speed compares the fixed loop that was timed before each run.
func speed(a, b *record.Run) []Change {
	loop := func(r *record.Run) stats.Summary {
		var all []float64
		for _, s := range r.Samples {
			if s.CalibrationNS > 0 {
				all = append(all, s.CalibrationNS.Seconds()*1e3)
			}
		}
		return stats.Summarize(all)
	}
	x, y := loop(a), loop(b)
	if x.N == 0 || y.N == 0 || max(x.Median/y.Median, y.Median/x.Median) < 1+worthTelling {
		return nil
	}
	return []Change{{"machine's speed, by a fixed loop", fmt.Sprintf("%.2f ms", x.Median), fmt.Sprintf("%.2f ms (%s)", y.Median, stats.Percent(y.Median/x.Median-1))}}
}

// firstDifference is the first line of b that is not in the same place of a.
func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i, line := range y {
		if i >= len(x) || x[i] != line {
			return fmt.Sprintf("line %d is %q", i+1, strings.TrimSpace(line))
		}
	}
	return fmt.Sprintf("it ends after line %d", len(y))
}
