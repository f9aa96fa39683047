// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// tolerance is how far a published figure may be from the log's: both have one
// decimal.
const tolerance = 0.05

// Comparison sets the published tables beside the runs.
type Comparison struct {
	Study     string  `json:"study"`
	Title     string  `json:"title"`
	Source    string  `json:"source,omitempty"`
	Tolerance float64 `json:"tolerance"`
	// Compared is how many published figures have runs, Agreeing how many of
	// them are the runs' own.
	Compared int `json:"compared"`
	Agreeing int `json:"agreeing"`
	// Response says which of httperf's times the published response time is,
	// Agreement how many cells each of them agrees in.
	Response      string         `json:"response"`
	Agreement     map[string]int `json:"agreement"`
	Disagreements []Disagreement `json:"disagreements"`
	// Missing are published cells without a run.
	Missing []string `json:"missing,omitempty"`

	response candidate
}

// Disagreement is a published figure that its runs do not have.
type Disagreement struct {
	Table     string  `json:"table"`
	Metric    string  `json:"metric"`
	Rate      float64 `json:"rate"`
	Scheduler string  `json:"scheduler"`
	Published float64 `json:"published"`
	Logged    float64 `json:"logged"` // the median of several runs
	Unit      string  `json:"unit"`
	// Hint is where the published figure may come from.
	Hint string `json:"hint"`
}

// candidate is one of httperf's times that a response time can be.
type candidate struct {
	name  string
	key   string // of TimesMS; none for the response itself
	value func(*Result) *float64
}

var candidates = []candidate{
	{"reply time, response", "", func(r *Result) *float64 { return r.ResponseMS }},
	timeCandidate("reply time, response + transfer", TimeReply),
	timeCandidate("connection time, avg", TimeConnMean),
	timeCandidate("connection time, median", TimeConnMedian),
	timeCandidate("connection time, connect", TimeConnect),
}

func timeCandidate(name, key string) candidate {
	return candidate{name, key, func(r *Result) *float64 {
		if v, ok := r.TimesMS[key]; ok {
			return &v
		}
		return nil
	}}
}

// differs reports whether no run of the cell can have been rounded to the
// published figure.
func differs(published float64, s stats.Summary) bool {
	const slack = tolerance + 1e-9
	return published < s.Min-slack || published > s.Max+slack
}

// compare checks every published figure that has runs.
func compare(s *study.Study, cells map[cellKey][]*Result) *Comparison {
	c := &Comparison{Study: s.Name, Title: s.Title, Source: s.Source, Tolerance: tolerance, Agreement: map[string]int{}, Disagreements: []Disagreement{}}
	c.chooseResponse(s, cells)
	missing := map[string]bool{}
	for _, q := range quantities {
		table, ok := s.Published.Table(q.published)
		if !ok {
			continue
		}
		value := q.value
		if q.published == study.ResponseTime {
			value = c.response.value
		}
		for _, key := range publishedCells(s, table) {
			got := cell(key, cells, value)
			if got.N == 0 {
				missing[fmt.Sprintf("%s-%g", key.scheduler, key.rate)] = true
				continue
			}
			c.Compared++
			if figure := table.Values[key.rate][key.scheduler]; differs(figure, got.Summary) {
				c.Disagreements = append(c.Disagreements, Disagreement{
					Table: table.Label, Metric: q.key, Rate: key.rate, Scheduler: key.scheduler,
					Published: figure, Logged: got.Median, Unit: q.unit, Hint: hint(figure, got.Median, key, cells, value),
				})
			} else {
				c.Agreeing++
			}
		}
	}
	c.Missing = slices.Sorted(maps.Keys(missing))
	return c
}

// publishedCells lists the cells of a table in reading order.
func publishedCells(s *study.Study, t study.Table) (keys []cellKey) {
	for _, rate := range slices.Sorted(maps.Keys(t.Values)) {
		names := slices.Sorted(maps.Keys(t.Values[rate]))
		slices.SortStableFunc(names, func(a, b string) int { return place(s, a) - place(s, b) })
		for _, name := range names {
			keys = append(keys, cellKey{name, rate})
		}
	}
	return keys
}

// place is a scheduler's place in the study.
func place(s *study.Study, scheduler string) int {
	names := s.Schedulers()
	if i := slices.Index(names, scheduler); i >= 0 {
		return i
	}
	return len(names)
}

// chooseResponse finds which of httperf's times was published: the one that
// agrees in most cells, of equals the first.
func (c *Comparison) chooseResponse(s *study.Study, cells map[cellKey][]*Result) {
	c.response = candidates[0]
	table, _ := s.Published.Table(study.ResponseTime)
	compared, most := 0, 0
	for i, cand := range candidates {
		n := 0
		for _, key := range publishedCells(s, table) {
			got := cell(key, cells, cand.value)
			if got.N == 0 {
				continue
			}
			if i == 0 {
				compared++
			}
			if !differs(table.Values[key.rate][key.scheduler], got.Summary) {
				n++
			}
		}
		c.Agreement[cand.name] = n
		if n > most {
			most, c.response = n, cand
		}
	}
	c.Response = c.explainResponse(compared)
}

func (c *Comparison) explainResponse(compared int) string {
	var others []string
	for _, cand := range candidates {
		if cand.name == c.response.name {
			continue
		}
		others = append(others, fmt.Sprintf("%s in %d", cand.name, c.Agreement[cand.name]))
	}
	return fmt.Sprintf("httperf's %q, which agrees in %d of %d cells (%s)",
		c.response.name, c.Agreement[c.response.name], compared, strings.Join(others, ", "))
}

// hint says where a wrong figure may come from: another cell, or a slip of the
// pen.
func hint(published, logged float64, at cellKey, cells map[cellKey][]*Result, value func(*Result) *float64) string {
	var elsewhere []string
	for key := range cells {
		if got := cell(key, cells, value); key != at && got.N > 0 && !differs(published, got.Summary) {
			elsewhere = append(elsewhere, fmt.Sprintf("%s at %g/s", key.scheduler, key.rate))
		}
	}
	slices.Sort(elsewhere)
	switch slip := slip(fixed(published), fixed(logged)); {
	case len(elsewhere) > 0:
		return "it is the log's figure of " + strings.Join(elsewhere, ", ")
	case slip != "":
		return slip
	}
	return "no log given has it"
}

func fixed(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', 1, 64) }

// slip names how one number was written for another.
func slip(a, b string) string {
	if len(a) != len(b) {
		return ""
	}
	var at []int
	for i := range a {
		if a[i] != b[i] {
			at = append(at, i)
		}
	}
	switch {
	case len(at) == 1:
		return "one digit differs"
	case len(at) == 2 && at[1] == at[0]+1 && a[at[0]] == b[at[1]] && a[at[1]] == b[at[0]]:
		return "two digits are exchanged"
	}
	return ""
}
