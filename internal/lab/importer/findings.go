// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Finding is one thing that runs show, with the numbers and what it means.
type Finding struct {
	Kind string   `json:"kind"`
	Text string   `json:"text"`
	Runs []string `json:"runs,omitempty"` // that it is about
}

// rule looks at all runs and says one sentence, or nothing.
type rule struct {
	kind string
	of   func(*Result) bool // the runs it is about
	say  func(about, all []*Result) string
}

// rules are asked in this order: first what spoils a run, then what limits
// what it says.
var rules = []rule{
	{"contradiction", func(r *Result) bool { return len(r.Contradictions) > 0 }, sayContradiction},
	{"misnamed", func(r *Result) bool { k, ok := cellOf(r); return ok && misnamed(r, k) }, sayMisnamed},
	{"client-limits", func(r *Result) bool { return notBegun(r) > 0 }, sayClientLimits},
	{"not-connected", neverOpened, sayNeverOpened},
	{"stopped", stopped, sayStopped},
	{"rate-not-reached", rateMissed, sayRateMissed},
	{"client-cpu", func(r *Result) bool { return r.CPU != nil && r.CPU.Total > busyCPU }, sayClientCPU},
	{"client-shared", func(r *Result) bool { return r.CPU != nil && r.CPU.Total < wholeCPU }, sayClientShared},
	{"failed", func(r *Result) bool { return failed(r) > 0 }, sayFailed},
	{"length", func(r *Result) bool { return r.Errors["length"] > 0 }, sayLength},
	{"nothing-received", nothingReceived, sayNothingReceived},
	{"status", func(r *Result) bool { return r.Replies > 0 && notOK(r) > 0 }, sayStatus},
	{"kept-alive", func(r *Result) bool { return reuse(r) > 1 }, sayKeptAlive},
	{"short", tooShort, sayShort},
	{"few-replies", func(r *Result) bool { return r.Replies < fewReplies }, sayFewReplies},
	{"idle-clients", idleClients, sayIdleClients},
	{"resolution", coarse, sayCoarse},
	{"closed-loop", func(r *Result) bool { return r.Tool != Httperf }, sayClosedLoop},
	{"single-run", func(*Result) bool { return true }, saySingle},
}

// findings asks every rule.
func findings(runs []Result) []Finding {
	out := []Finding{}
	all := make([]*Result, len(runs))
	for i := range runs {
		all[i] = &runs[i]
	}
	for _, rule := range rules {
		var about []*Result
		for _, r := range all {
			if rule.of(r) {
				about = append(about, r)
			}
		}
		if len(about) == 0 {
			continue
		}
		if text := rule.say(about, all); text != "" {
			out = append(out, Finding{rule.kind, text, names(about)})
		}
	}
	return out
}

func names(rs []*Result) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Name())
	}
	return out
}

// subject names the runs of a finding, shortly.
func subject(about, all []*Result) string {
	switch {
	case len(about) == len(all) && len(all) == 1:
		return "The run"
	case len(about) == len(all):
		return fmt.Sprintf("All %d runs", len(all))
	case len(about) <= 3:
		return strings.Join(names(about), ", ")
	}
	return fmt.Sprintf("%d of %d runs (%s and others)", len(about), len(all), about[0].Name())
}

// span writes the range of a figure over runs.
func span(rs []*Result, format string, value func(*Result) float64) string {
	least, most := value(rs[0]), value(rs[0])
	for _, r := range rs {
		least, most = min(least, value(r)), max(most, value(r))
	}
	low, high := fmt.Sprintf(format, least), fmt.Sprintf(format, most)
	if low == high {
		return low
	}
	return low + " to " + high
}

func sayContradiction(about, _ []*Result) string {
	var parts []string
	for _, r := range about {
		parts = append(parts, r.Name()+": "+strings.Join(r.Contradictions, "; "))
	}
	return "Figures that cannot all be true, so something changed the text: " + strings.Join(parts, ". ") + "."
}

func sayMisnamed(about, _ []*Result) string {
	var parts []string
	for _, r := range about {
		parts = append(parts, fmt.Sprintf("%s asked for %g/s", r.Name(), *r.Asked.Rate))
	}
	return "Named for another rate than was asked, and so in no table: " + strings.Join(parts, ", ") + "."
}

// perCause lists the causes that occurred, with their sums.
func perCause(rs []*Result, skip []string) string {
	sums := map[string]int64{}
	for _, r := range rs {
		for cause, n := range r.Errors {
			if n > 0 && !slices.Contains(skip, cause) {
				sums[cause] += n
			}
		}
	}
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, fmt.Sprintf("%s %d", cause, sums[cause]))
	}
	return strings.Join(parts, ", ")
}
