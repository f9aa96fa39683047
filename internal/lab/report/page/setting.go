// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/study"
)

// setting is where the run was made and how to make it again.
type setting struct {
	Command string
	Text    string // of the study
	Rows    []settingRow
	// Configurations are those of the competitors, in the order of the tables.
	Configurations []settingRow
}

type settingRow struct{ Name, Value string }

func newSetting(e record.Environment, s *study.Study) setting {
	p := e.Plan
	length := "as many requests as the level says"
	switch {
	case p.Connections > 0:
		length = grouped(float64(p.Connections), 0) + " connections"
	case p.Duration > 0:
		length = p.Duration.String()
	}
	made := setting{Command: again(e), Text: e.StudyText}
	add := func(name, value string) {
		if value != "" {
			made.Rows = append(made.Rows, settingRow{name, value})
		}
	}
	add("Started", e.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	add("Seed", strconv.FormatUint(p.Seed, 10))
	add("A run", fmt.Sprintf("%s after %v of warm-up, timeout %v", length, p.Warmup, p.Timeout))
	add("Requests choose among", strings.Join(s.Choices(), "; "))
	add("Runs a cell", fmt.Sprintf("%d, each block in a random order of its own", p.Repeats))
	add("Left out", strings.Join(p.LeftOut, ", "))
	add("CPU", fmt.Sprintf("%d × %s", e.CPUs, e.CPU))
	if e.MemoryKB > 0 {
		add("Memory", fmt.Sprintf("%.1f GiB", float64(e.MemoryKB)/(1<<20)))
	}
	add("Kernel", strings.TrimSpace("Linux "+e.Kernel+" "+e.Machine))
	add("imbang", strings.TrimSpace(e.Imbang+" "+e.Go))
	for _, name := range slices.Sorted(maps.Keys(e.Programs)) {
		add(name, e.Programs[name])
	}
	for _, name := range slices.Sorted(maps.Keys(e.Limits)) {
		add(name, e.Limits[name])
	}
	add("BPF run-time statistics", e.BPFStats)
	for _, c := range p.Competitors {
		if text := e.Configurations[c.Name]; text != "" {
			made.Configurations = append(made.Configurations, settingRow{c.Name, text})
		}
	}
	return made
}

// again is the command that makes the run again: the one that made it, with
// its seed and without the directory that is taken now.
func again(e record.Environment) string {
	words := []string{"imbang"}
	list := e.CommandLine
	if len(list) > 0 {
		if filepath.Base(list[0]) == "imbang-lab" {
			words[0] = "imbang-lab"
		}
		list = list[1:]
	}
	if len(list) == 0 {
		list = []string{"lab", "run", e.Study}
	}
	for i := 0; i < len(list); i++ {
		switch w := list[i]; {
		case w == "--out" || w == "--seed":
			i++ // and its value
		case strings.HasPrefix(w, "--out="), strings.HasPrefix(w, "--seed="):
		default:
			words = append(words, quoted(w))
		}
	}
	return strings.Join(append(words, "--seed", strconv.FormatUint(e.Plan.Seed, 10)), " ")
}

// quoted writes a word as a shell takes it.
func quoted(w string) string {
	if w != "" && !strings.ContainsFunc(w, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%", r)
	}) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// facts are the run in a few words.
func facts(e record.Environment, rep *report.Report) []string {
	list := []string{e.Started.UTC().Format("2 January 2006, 15:04 UTC")}
	if rep.Measured < rep.Planned {
		list = append(list, fmt.Sprintf("%d of %d runs", rep.Measured, rep.Planned))
	} else {
		list = append(list, fmt.Sprintf("%d runs, %d a cell", rep.Measured, e.Plan.Repeats))
	}
	return append(list, fmt.Sprintf("Linux %s on %d CPUs", e.Kernel, e.CPUs), "imbang "+build(e))
}

// build is the version that was measured, with its commit where that is known.
func build(e record.Environment) string {
	b := e.Builds["imbang"]
	if b.Commit == "" {
		return e.Imbang
	}
	s := e.Imbang + ", commit " + b.Commit[:min(12, len(b.Commit))]
	if b.Modified {
		s += ", modified"
	}
	return s
}

// file is one that lies beside the page.
type file struct{ Name, Says string }

// fileWords says what the files hold.
var fileWords = map[string]string{
	record.SamplesFile: "every run, with its whole latency distribution", record.ArchivedFile: "every run, with its whole latency distribution, compressed", record.EnvironmentFile: "the machine, the plan, the study",
	report.TablesFile: "this report as text", "comparisons.csv": "all pairs", "spread.csv": "share of each server", "loss_causes.csv": "losses by cause",
	report.ConfigurationsFile: "the configuration of each competitor",
}

// listFiles names the run's files that exist.
func listFiles(dir string) (list []file) {
	for _, pattern := range []string{"*.jsonl", "*.jsonl.gz", "*.json", "*.txt", "*.csv"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is a good one
		for _, path := range found {
			name := filepath.Base(path)
			if st, err := os.Stat(path); err != nil || st.IsDir() {
				continue
			}
			says := fileWords[name]
			for _, m := range report.Metrics() {
				if name == m.Key+".csv" {
					says = strings.ToLower(m.Title[:1]) + m.Title[1:]
				}
			}
			if says != "" { // others are none of ours
				list = append(list, file{name, strings.Replace(says, "cPU", "CPU", 1)})
			}
		}
	}
	return list
}
