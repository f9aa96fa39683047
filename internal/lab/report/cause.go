// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// Kind is a cause in a word, for programs.
type Kind string

// The causes for which something is not measurable. The first ones take a
// competitor out of the ranking; those from EqualWeights on say what a ranking
// cannot show.
const (
	NotMeasured     Kind = "not_measured"
	ClientSaturated Kind = "client_saturated" // requests not sent, or CPU of the client in late runs
	GeneratorBehind Kind = "generator_behind" // every run was late, for no limit that was found
	RequestsLost    Kind = "requests_lost"
	ErrorPages      Kind = "error_pages"
	OneAddress      Kind = "one_address" // under a scheduler that hashes it
	EqualWeights    Kind = "equal_weights"
	NeverShort      Kind = "never_short"     // throughput: all carried what was asked
	GeneratorDelay  Kind = "generator_delay" // latencies that it can explain
	TooFewRuns      Kind = "too_few_runs"
	ControlDiffers  Kind = "control_differs" // the same competitor, measured twice, differs
)

// kinds orders them, with their words.
var kinds = []struct {
	Kind
	words string
}{
	{NotMeasured, "not measured"},
	{ClientSaturated, "client saturated"},
	{GeneratorBehind, "generator behind schedule"},
	{RequestsLost, "requests lost"},
	{ErrorPages, "error pages"},
	{OneAddress, "one address under a scheduler that hashes it"},
	{EqualWeights, "equal weights"},
	{NeverShort, "throughput ranks nothing"},
	{GeneratorDelay, "generator delay"},
	{TooFewRuns, "too few runs"},
	{ControlDiffers, "the control differs from itself"},
}

// Cause is why something is not measurable here.
type Cause struct {
	Kind Kind   `json:"kind"`
	Text string `json:"text"`
	// Cells names the competitors concerned; in the study's verdict with their
	// condition, as in "rr at 2000/s".
	Cells []string `json:"cells,omitempty"`
}

// words name the kind.
func (k Kind) words() string {
	for _, x := range kinds {
		if x.Kind == k {
			return x.words
		}
	}
	return string(k)
}

// runsWith counts the runs of a cell that a cause concerns.
type runsWith struct {
	n       int
	example string
}

func (r *runsWith) add(example string) {
	if r.n++; r.n == 1 {
		r.example = example
	}
}

// explain finds why the cell is not ranked. Late runs are no cause while there
// are others; runs whose client did not send all requests are.
func (c *Cell) explain(samples []record.Sample, condition record.Condition, s *study.Study) {
	if c.Runs == 0 {
		c.because(NotMeasured, "no run was measured")
		return
	}
	var unsent, saturated, behind, lost, pages runsWith
	var status load.Status
	for _, smp := range samples {
		r := smp.Load
		if smp.Error != "" || r == nil {
			continue
		}
		limits := r.Limits()
		switch {
		case r.Loss.Client.Total() > 0 && r.Generator.Behind:
			unsent.add(r.Generator.Reason)
		case r.Loss.Client.Total() > 0:
			unsent.add(cmp.Or(strings.Join(limits, "; "), "requests were not sent"))
		case r.Generator.Behind && len(limits) > 0:
			saturated.add(r.Generator.Reason)
		case r.Generator.Behind:
			behind.add(r.Generator.Reason)
		}
		if r.Loss.Total() > r.Loss.Client.Total() {
			lost.add("")
		}
		if n := otherReplies(r); n > 0 {
			pages.add("")
			add(&status, r.Status)
		}
	}
	if len(c.Late) < c.Runs { // claims are judged with the late runs and without
		saturated, behind = runsWith{}, runsWith{}
	}
	lost.example, pages.example = c.lossWords(), statusWords(status)
	for _, x := range []struct {
		runsWith
		kind Kind
	}{{unsent, ClientSaturated}, {saturated, ClientSaturated}, {behind, GeneratorBehind}, {lost, RequestsLost}, {pages, ErrorPages}} {
		if x.n > 0 {
			c.because(x.kind, "in %d of %d runs: %s", x.n, c.Runs, x.example)
		}
	}
	if why, ok := oneAddress(*c, condition, s); ok {
		c.because(OneAddress, "%s", why)
	}
}

func (c *Cell) because(k Kind, format string, args ...any) {
	c.Causes = append(c.Causes, Cause{Kind: k, Text: fmt.Sprintf(format, args...), Cells: []string{c.Name}})
}

// otherReplies counts replies that are no pages. A tool that does not tell
// the good ones may tell the bad ones.
func otherReplies(r *load.Result) int {
	if tells(r, "status.2xx") {
		return max(0, r.Replies-r.Status.Success)
	}
	return r.Status.Redirect + r.Status.ClientError + r.Status.ServerError
}

func add(sum *load.Status, s load.Status) {
	sum.Informational += s.Informational
	sum.Redirect += s.Redirect
	sum.ClientError += s.ClientError
	sum.ServerError += s.ServerError
}

func statusWords(s load.Status) string {
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{{s.Redirect, "3xx"}, {s.ClientError, "4xx"}, {s.ServerError, "5xx"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d replies %s", x.n, x.what))
		}
	}
	if len(parts) == 0 {
		return "replies that are not 2xx"
	}
	return strings.Join(parts, ", ")
}

// lossWords says what was lost on the way, by cause.
func (c *Cell) lossWords() string {
	var parts []string
	for _, cause := range causeNames {
		if n := c.Loss[cause]; n > 0 && cause != "client" {
			parts = append(parts, fmt.Sprintf("%d %s", n, cause))
		}
	}
	return strings.Join(parts, ", ")
}

// gather puts causes of one kind together, in the order of the kinds. at is
// added to the names of the cells.
func gather(into []Cause, from []Cause, at string) []Cause {
	for _, c := range from {
		i := slices.IndexFunc(into, func(x Cause) bool { return x.Kind == c.Kind })
		if i < 0 {
			i = len(into)
			into = append(into, Cause{Kind: c.Kind, Text: c.Text})
		}
		for _, name := range c.Cells {
			into[i].Cells = append(into[i].Cells, name+at)
		}
	}
	slices.SortStableFunc(into, func(a, b Cause) int { return place(a.Kind) - place(b.Kind) })
	return into
}

func place(k Kind) int {
	for i, x := range kinds {
		if x.Kind == k {
			return i
		}
	}
	return len(kinds)
}

// sentence says a cause with its cells; of several cells the text is that of
// the first.
func (c Cause) sentence() string {
	return fmt.Sprintf("%s (%s%s)", strings.Join(c.Cells, ", "), c.Kind.words(), c.detail())
}

// detail is the text behind the kind's words.
func (c Cause) detail() string {
	if len(c.Cells) > 1 && !c.Kind.common() {
		return ", for example: " + c.Text
	}
	return ": " + c.Text
}

// common reports whether the text is about all cells together.
func (k Kind) common() bool { return place(k) >= place(EqualWeights) }
