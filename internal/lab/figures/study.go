// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
)

// studyFigure is a figure of an archived run: the metric of a competitor at a
// condition, as tables name them. With over it is by how many percent the
// competitor exceeds another one, as the report compares them. Without a metric
// it is the number of samples, blocks, cells or servers.
func (s *Store) studyFigure(name string, q query) (float64, error) {
	run, err := s.study(name)
	if err != nil {
		return 0, err
	}
	metric, at, of, over := q.take("metric", ""), q.take("at", ""), q.take("of", ""), q.take("over", "")
	count := q.take("figure", "")
	take, err := statistic(q)
	if err == nil {
		err = q.done()
	}
	if err != nil {
		return 0, err
	}
	if count != "" {
		return run.count(count)
	}
	var values []float64
	for _, row := range run.rows(at) {
		for _, c := range row.Cells {
			if of != "" && c.Name != of {
				continue
			}
			v, ok := c.Values[metric]
			if !ok {
				return 0, fmt.Errorf("no metric %q", metric)
			}
			if over != "" {
				d, ok := difference(row, metric, of, over, take)
				if !ok {
					continue
				}
				values = append(values, 100*d)
				continue
			}
			if x, ok := valueOf(v, take); ok {
				values = append(values, x)
			}
		}
	}
	return take.one(values)
}

// count is a number that describes the run.
func (r *stored) count(figure string) (float64, error) {
	blocks := 0
	for _, s := range r.run.Samples {
		blocks = max(blocks, s.Block)
	}
	switch figure {
	case "samples":
		return float64(len(r.run.Samples)), nil
	case "late":
		late := 0
		for _, s := range r.run.Samples {
			if s.Load != nil && s.Load.Generator.Behind {
				late++
			}
		}
		return float64(late), nil
	case "blocks":
		return float64(blocks), nil
	case "cells":
		return float64(r.run.Environment.Plan.Cells), nil
	case "cpus":
		return float64(r.run.Environment.CPUs), nil
	}
	return 0, fmt.Errorf("no figure %q: there are samples, late, blocks, cells, cpus", figure)
}

// rows are the levels of all sections, or those that conditions name,
// separated by semicolons.
func (r *stored) rows(at string) (rows []report.Row) {
	for _, sec := range r.report.Sections {
		for _, row := range sec.Rows {
			if at == "" || slices.ContainsFunc(split(at, ";"), func(x string) bool { return isAt(row.Condition.String(), x) }) {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// valueOf takes one number out of a cell's metric.
func valueOf(v report.Value, take stat) (float64, bool) {
	switch take {
	case "published":
		if v.Published == nil {
			return 0, false
		}
		return *v.Published, true
	case "low", "high":
		if v.Interval == nil {
			return 0, false
		}
		if take == "low" {
			return v.Interval.Low, v.N > 0
		}
		return v.Interval.High, v.N > 0
	case "min":
		return v.Min, v.N > 0
	case "max":
		return v.Max, v.N > 0
	}
	return v.Median, v.N > 0
}

// difference is by what share one competitor exceeds another, as compared in
// the report; false if it did not compare them.
func difference(row report.Row, metric, of, over string, take stat) (float64, bool) {
	for _, p := range row.Comparisons[metric].Pairs {
		low, mid, high := p.Joint.Low, p.Difference, p.Joint.High
		switch {
		case p.A == over && p.B == of:
		case p.A == of && p.B == over: // turned round
			low, mid, high = 1/(1+high)-1, 1/(1+mid)-1, 1/(1+low)-1
		default:
			continue
		}
		switch take {
		case "low":
			return low, true
		case "high":
			return high, true
		}
		return mid, true
	}
	return 0, false
}

func split(text, by string) (parts []string) {
	for _, p := range strings.Split(text, by) {
		parts = append(parts, strings.TrimSpace(p))
	}
	return parts
}

// block is what stands between the comments that begin and end one.
func (s *Store) block(text string) (string, error) {
	q, err := parseQuery(text)
	if err != nil {
		return "", err
	}
	name, show := q.take("study", ""), q.take("show", "")
	if costBlocks[show] != nil {
		out, err := s.costBlock(show, q)
		if err != nil {
			err = fmt.Errorf("%w (%s)", err, text)
		}
		return out, err
	}
	made, known := shows[show]
	if name == "" || !known {
		return "", fmt.Errorf("%q: want study=NAME and show=verdict, findings, setting or table; or file=FILE or bench=PART and show=ratios or stages", text)
	}
	run, err := s.study(name)
	if errors.Is(err, errNoRun) {
		return fmt.Sprintf("*No run of `%s` is stored.*\n", name), nil
	}
	if err != nil {
		return "", err
	}
	out, err := made(run, q)
	if err == nil {
		err = q.done()
	}
	if err != nil {
		return "", fmt.Errorf("%w (%s)", err, text)
	}
	return out, nil
}

// shows are the blocks that can be made of an archived run.
var shows = map[string]func(*stored, query) (string, error){
	"verdict": verdict, "findings": findings, "setting": setting, "table": table,
}

// verdict is the one on the whole study, as a quotation.
func verdict(r *stored, _ query) (string, error) {
	return "> Verdict: " + escape(r.report.Verdict.Sentence) + "\n", nil
}

// findings are the sentences on each level, with what was not measurable.
func findings(r *stored, q query) (string, error) {
	var b strings.Builder
	for _, row := range r.rows(q.take("at", "")) {
		for _, v := range row.Verdicts {
			fmt.Fprintf(&b, "- %s: %s\n", row.Condition, escape(v))
		}
	}
	if b.Len() == 0 {
		return "", errors.New("nothing is said at this condition")
	}
	return b.String(), nil
}

// setting is where, when and with what the run was made.
func setting(r *stored, _ query) (string, error) {
	e := r.run.Environment
	var b strings.Builder
	for _, line := range r.report.Setting {
		fmt.Fprintf(&b, "- %s\n", escape(line))
	}
	fmt.Fprintf(&b, "- programs: %s\n", programs(e))
	fmt.Fprintf(&b, "- %d samples, of %d cells, in `%s`; made by `%s`\n", len(r.run.Samples), e.Plan.Cells,
		path.Join(StudiesDir, e.Study), command(e.CommandLine))
	return b.String(), nil
}

// command is the command line of a run without the place of the program and of
// the results.
func command(args []string) string {
	words := []string{"imbang-lab"}
	for i := 1; i < len(args); i++ {
		if args[i] == "--out" {
			i++
			continue
		}
		if !strings.HasPrefix(args[i], "--out=") {
			words = append(words, args[i])
		}
	}
	return strings.Join(words, " ")
}

// programs are the commits of imbang's own.
func programs(e record.Environment) string {
	var parts []string
	for _, name := range []string{"imbang", "imbang-lab"} {
		b := e.Builds[name]
		commit := b.Commit
		switch {
		case commit == "":
			commit = "unknown"
		case b.Modified:
			commit += ", modified"
		}
		parts = append(parts, fmt.Sprintf("%s (commit %s)", name, commit))
	}
	return strings.Join(parts, ", ")
}

// escape keeps Markdown from reading markup into a sentence.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;").Replace(text)
}

// isAt reports whether a condition is the one that a page names: whole, or
// without the rate that a fraction of the capacity came to, as in "60 % of
// capacity, poisson" for "60 % of capacity (901/s), poisson".
func isAt(condition, named string) bool {
	before, behind, ok := strings.Cut(condition, " (")
	if _, rest, closed := strings.Cut(behind, ")"); ok && closed && before+rest == named {
		return true
	}
	return condition == named
}
