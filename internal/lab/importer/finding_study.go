// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"imbang/internal/lab/study"
)

// studyFindings are those that need the study: what the published tables say
// of the runs and the runs of the tables.
func studyFindings(s *study.Study, rep *Report, cells map[cellKey][]*Result) []Finding {
	var runs []*Result
	for _, rs := range cells {
		runs = append(runs, rs...)
	}
	slices.SortFunc(runs, func(a, b *Result) int { return strings.Compare(a.Name(), b.Name()) })
	var out []Finding
	for _, f := range []Finding{
		{"other-cluster", otherCluster(s, runs), nil},
		{"published-tables", publishedTables(rep.Comparison), nil},
		{"loss-elsewhere", lossElsewhere(runs), nil},
		{"one-address", oneAddress(s, runs), nil},
		{"same-by-definition", sameByDefinition(s, rep.Tables), nil},
		{"leaders", leaders(s, rep.Tables), nil},
	} {
		if f.Text != "" {
			out = append(out, f)
		}
	}
	return out
}

// otherCluster warns of runs that are not those that were published.
func otherCluster(s *study.Study, runs []*Result) string {
	for _, r := range runs {
		if s.Published.VirtualAddress != "" && r.Target != "" && host(r.Target) != s.Published.VirtualAddress {
			return fmt.Sprintf("%s asked %s and not the study's %s: these are other runs, and need not have the published figures.",
				r.Name(), host(r.Target), s.Published.VirtualAddress)
		}
	}
	return ""
}

func publishedTables(c *Comparison) string {
	if c.Compared == 0 {
		return fmt.Sprintf("No run is of a cell that %s publishes: name the files SCHEDULER-RATE.txt, such as rr-2000.txt.", c.Study)
	}
	if len(c.Disagreements) == 0 {
		return fmt.Sprintf("Each of the %d published figures that have runs is that of its run.", c.Compared)
	}
	return fmt.Sprintf("%d of %d published figures are not those of their logs: the cells are listed above; "+
		"whatever was concluded from them rests on other numbers than were measured.", len(c.Disagreements), c.Compared)
}

// lossElsewhere holds if the quantity called request loss is 0 and requests
// were lost otherwise.
func lossElsewhere(runs []*Result) string {
	var lost, begun int64
	for _, r := range runs {
		if v := sumOf(r, "connrefused", "connreset"); v == nil || *v > 0 {
			return ""
		}
		lost += r.lost() - notBegun(r)
		begun += notBegun(r)
	}
	if lost+begun == 0 {
		return ""
	}
	return fmt.Sprintf("Request loss as connrefused + connreset is 0 in every run, and so ranks nothing; what was lost is elsewhere: "+
		"%d connections never begun and %d given up by the client (%s).", begun, lost, perCause(runs, clientLimits))
}

// onAddresses are the schedulers that look at addresses alone, while servers
// are not overloaded.
var onAddresses = []struct{ name, why string }{
	{"sh", "hashes the client's address"},
	{"dh", "hashes the address asked"},
	{"lblc", "keeps an address asked on one server until that is overloaded"},
}

// oneAddress holds if a single client asked a single address.
func oneAddress(s *study.Study, runs []*Result) string {
	var parts []string
	for _, sched := range onAddresses {
		if slices.ContainsFunc(runs, func(r *Result) bool { k, _ := cellOf(r); return k.scheduler == sched.name }) {
			parts = append(parts, sched.name+" "+sched.why)
		}
	}
	if len(parts) == 0 || len(s.Servers) < 2 {
		return ""
	}
	for _, r := range runs {
		if r.Asked.Client != "0/1" || r.Target != runs[0].Target {
			return ""
		}
	}
	return fmt.Sprintf("One client (--client=0/1) asked one address (%s) in every run: %s; with one of each, "+
		"each of them sent all connections to one server (lblc at least until then), and its column says nothing about balancing.", host(runs[0].Target), strings.Join(parts, ", "))
}

// twins are the same when all weights are equal.
var twins = [][2]string{{"rr", "wrr"}, {"lc", "wlc"}}

// sameByDefinition measures the noise: how far runs of the same are apart.
func sameByDefinition(s *study.Study, ts []Table) string {
	if !s.Weights[0].Equal() {
		return ""
	}
	var parts []string
	for _, key := range []string{keyThroughput, keyResponse} {
		for _, t := range ts {
			if t.Key != key {
				continue
			}
			if most, where := farthest(t); most > 0 {
				parts = append(parts, fmt.Sprintf("%s by up to %.0f %% (%s)", map[string]string{keyThroughput: "throughput", keyResponse: "mean response time"}[key], 100*most, where))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("All weights are equal, so wrr is rr and wlc is lc by definition; yet their runs differ in %s: "+
		"that is the noise of one run, and a smaller difference between any two schedulers means nothing.", strings.Join(parts, " and in "))
}

// farthest finds the twins that are farthest apart in a table.
func farthest(t Table) (most float64, where string) {
	for _, row := range t.Rows {
		for _, pair := range twins {
			a, b := figure(t, row, pair[0]), figure(t, row, pair[1])
			if a <= 0 || b <= 0 {
				continue
			}
			if d := math.Abs(a-b) / min(a, b); d > most {
				most = d
				where = fmt.Sprintf("%s %.*f, %s %.*f %s at %g/s", pair[0], t.decimals, a, pair[1], t.decimals, b, t.Unit, row.Rate)
			}
		}
	}
	return most, where
}

func figure(t Table, row Row, scheduler string) float64 {
	if i := slices.Index(t.Columns, scheduler); i >= 0 && row.Cells[i].N > 0 {
		return row.Cells[i].Median
	}
	return 0
}

// leaders names who is first at each rate, beside the published conclusion.
func leaders(s *study.Study, ts []Table) string {
	var parts []string
	for _, t := range ts {
		if (t.Key != keyThroughput && t.Key != keyResponse) || len(t.Columns) < 2 {
			continue
		}
		word := map[string]string{keyThroughput: "highest throughput", keyResponse: "lowest response time"}[t.Key]
		var at []string
		for _, row := range t.Rows {
			at = append(at, fmt.Sprintf("%s at %g/s", first(row, t.Key == keyResponse), row.Rate))
		}
		parts = append(parts, word+": "+strings.Join(at, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	text := "In the logs, " + strings.Join(parts, "; ") + "."
	if s.Published.Conclusion != "" {
		text += " Published conclusion: " + s.Published.Conclusion
	}
	return text
}

// first is the scheduler with the greatest or least figure of a row.
func first(row Row, least bool) string {
	name, best := "none", 0.
	for _, c := range row.Cells {
		if c.N == 0 {
			continue
		}
		if name == "none" || (least && c.Median < best) || (!least && c.Median > best) {
			name, best = c.Scheduler, c.Median
		}
	}
	return name
}
