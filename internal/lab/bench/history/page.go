// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"strconv"
	"strings"
)

// Page is the history in Markdown: of each part the latest results and
// the targets, and where there are several runs, the course of the targets.
func Page(runs []Run) (string, error) {
	var w strings.Builder
	w.WriteString(preface)
	for _, name := range names(runs) {
		all := named(runs, name)
		if err := section(&w, all[len(all)-1]); err != nil {
			return "", fmt.Errorf("history: %s: %w", name, err)
		}
		trend(&w, everyRun(runs, name), all[len(all)-1])
		writeChanges(&w, name)
	}
	return w.String(), nil
}

const preface = `# Performance

Made by ` + "`imbang bench page`" + ` from [the history](bench/history.jsonl) of ` + "`make bench`" + `; a test compares the two.
Figures are medians with the range of all rounds in brackets; the figure of a target has the 95 % confidence interval of
the median where the run stored it. A target is met if both ends of the bracket meet it. [How the benchmarks measure](explanation/benchmarks.md) describes what is measured and how.

` + "`imbang bench packets`" + ` measures replies, IPv6, direct routing, tunnels, many client addresses and services, full tables, route changes and two
CPUs at once; ` + "`imbang bench flood`" + ` measures requests, replies and new connections of many addresses beside plain forwarding.
`

// section is a part with what it came to.
func section(w *strings.Builder, m measured) error {
	e := m.run.Environment
	fmt.Fprintf(w, "\n## %s\n\n`%s`, series %d, %s, version %s, Linux %s, %s, %d CPUs; a load of %.1f before it, and a fixed loop of %.1f ms, behind it %.1f.\n",
		title(m.Name), m.Command, m.series(), e.Date.UTC().Format("2006-01-02"), version(e), e.Kernel, e.CPU, e.CPUs, m.LoadAverage, m.LoopMS[0], m.LoopMS[1])
	if m.run.Quick {
		w.WriteString("\nA quick run: samples too short to be believed.\n")
	}
	if m.Error != "" {
		fmt.Fprintf(w, "\nExit status %d: %s\n", m.Status, m.Error)
	}
	if targets := m.Targets(); len(targets) > 0 {
		var body [][]string
		for _, t := range targets {
			body = append(body, []string{t.Name, t.Bound(), t.Figure(), t.Verdict()})
		}
		table(w, []string{"measure", "target", "measured", ""}, body)
	}
	return results(w, m)
}

// results are the rest of the part: figures that stand alone, then tables.
func results(w *strings.Builder, m measured) error {
	parsed, err := parse(m.Result)
	if err != nil {
		return err
	}
	all, ok := parsed.(object)
	if !ok {
		return fmt.Errorf("the result is no object")
	}
	var alone, tables object
	for _, one := range all.flat("") {
		list, isList := one.value.([]any)
		switch {
		case one.key == "targets":
		case isList && isTable(list):
			tables = append(tables, one)
		default:
			alone = append(alone, one)
		}
	}
	if len(alone) > 0 {
		var body [][]string
		for _, one := range alone {
			body = append(body, []string{words(one.key), cell(one.value)})
		}
		table(w, []string{"", ""}, body)
	}
	for _, one := range tables {
		head, body, _ := rows(one.value.([]any))
		for i := range head {
			head[i] = words(head[i])
		}
		fmt.Fprintf(w, "\n%s:\n", words(one.key))
		table(w, head, body)
	}
	return nil
}

func isTable(list []any) bool {
	_, _, ok := rows(list)
	return ok
}

// trend is the course of the latest run's targets over all runs, failed ones
// included.
func trend(w *strings.Builder, all []measured, last measured) {
	latest := last.Targets()
	if len(all) < 2 || len(latest) == 0 {
		return
	}
	w.WriteString("\nOver time; figures of different series are not comparable:\n")
	head := []string{"series", "date", "version", "CPU", "load", "fixed loop [ms]"}
	for _, t := range latest {
		head = append(head, t.Name)
	}
	var body [][]string
	for _, m := range all {
		e := m.run.Environment
		row := []string{number(m.series()), e.Date.UTC().Format("2006-01-02"), version(e), e.CPU, fmt.Sprintf("%.1f", m.LoadAverage), fmt.Sprintf("%.1f", m.LoopMS[0])}
		if m.Status == failed || len(m.Result) == 0 {
			row = append(row, strings.TrimSuffix(fmt.Sprintf("failed, exit status %d: %s", m.Status, m.Error), ": "))
			body = append(body, append(row, make([]string, len(latest)-1)...))
			continue
		}
		for _, t := range latest {
			row = append(row, valueOf(m, t.Name))
		}
		body = append(body, row)
	}
	table(w, head, body)
}

func number(n int) string { return strconv.Itoa(n) }

func valueOf(m measured, target string) string {
	for _, t := range m.Targets() {
		if t.Name == target {
			return t.Figure()
		}
	}
	return ""
}

func title(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// version is what was measured; without a commit, the version tells it.
func version(e Environment) string {
	if e.Commit == "" {
		return e.Version
	}
	return fmt.Sprintf("%s (%s)", e.Version, e.Commit[:min(len(e.Commit), 12)])
}
