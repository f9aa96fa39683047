// SPDX-License-Identifier: Apache-2.0

// Package report says what a run shows, from its stored files alone: tables
// beside the published figures, and for each rate a verdict that claims no
// more than the repeats carry.
//
// It measures nothing and can be run again on any stored run.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// Report is everything that is said about a run, ready for print or JSON.
type Report struct {
	Study      string   `json:"study"`
	Title      string   `json:"title"`
	Source     string   `json:"source,omitempty"`
	Hypothesis string   `json:"hypothesis,omitempty"`
	Setting    []string `json:"setting"` // what was run where, in lines
	// Configurations are what the competitors' programs were given.
	Configurations map[string]string `json:"configurations,omitempty"`
	// Measured of Planned samples exist; fewer after an interruption.
	Measured int `json:"measured"`
	Planned  int `json:"planned"`

	// Verdict is what may be said of the study as a whole.
	Verdict StudyVerdict `json:"verdict"`

	// Power is what the design finds, as stated before the run.
	Power []Power `json:"power,omitempty"`

	Sections  []Section        `json:"sections"`
	Tools     []ToolTable      `json:"tools,omitempty"`
	Published *PublishedClaims `json:"published,omitempty"`
	Caveats   []Caveat         `json:"caveats,omitempty"`
	Notes     []string         `json:"notes,omitempty"` // the caveats too

	stored *record.Run
}

// PublishedClaims is what the original said in words.
type PublishedClaims struct {
	VirtualAddress string   `json:"virtual_address,omitempty"`
	Conclusion     string   `json:"conclusion,omitempty"`
	Notes          []string `json:"notes,omitempty"`
	// Labels number the original's tables, by metric.
	Labels map[string]string `json:"labels,omitempty"`
}

// Section compares the competitors under conditions that differ in the level
// only: a rate, a number of requests or of users.
type Section struct {
	Title     string   `json:"title"`
	LevelUnit string   `json:"level_unit"`
	Columns   []string `json:"columns"` // competitors
	Rows      []Row    `json:"rows"`
}

// Row is one level.
type Row struct {
	record.Condition
	Cells []Cell `json:"cells"` // in the order of the columns
	// Outcome is the verdict in a word, Best who is best, by metric, under all
	// its names. Causes say what is not measurable at this level.
	Outcome  Outcome             `json:"outcome"`
	Best     map[string][]string `json:"best,omitempty"`
	Causes   []Cause             `json:"causes,omitempty"`
	Verdicts []string            `json:"verdicts,omitempty"` // in sentences
	// Comparisons holds the numbers behind the verdicts, by metric.
	Comparisons map[string]stats.Verdict `json:"comparisons,omitempty"`
	// Noise is by how much competitors differ that are the same by definition.
	Noise []Noise `json:"noise,omitempty"`
	// Control is what such a pair says of the machine, the noisiest of several.
	Control *stats.Control `json:"control,omitempty"`

	series   [][]stats.Series // those compared, for each metric that was
	answered []answer
}

// Noise compares two competitors that are one algorithm here.
type Noise struct {
	A          string         `json:"a"`
	B          string         `json:"b"`
	Difference float64        `json:"difference"` // by what share b's response time is greater
	Interval   stats.Interval `json:"interval"`
}

// Cell is all repeats of one measured cell.
type Cell struct {
	record.Competitor
	Runs  int   `json:"runs"`
	Marks Marks `json:"marks"`
	// Values holds the metrics by key.
	Values map[string]Value `json:"values"`
	// Scheduled, Lost and Loss are sums over the runs.
	Scheduled int            `json:"scheduled"`
	Lost      int            `json:"lost"`
	Loss      map[string]int `json:"loss,omitempty"`
	// Spread is each server's share of the replies, 0 to 1.
	Spread map[string]float64 `json:"spread,omitempty"`
	// Causes say why the cell is not ranked.
	Causes []Cause `json:"causes,omitempty"`
	// Late lists the blocks, from 1, whose run was late. It counts all the same.
	Late []int `json:"late_blocks,omitempty"`
	// Delayed lists the metrics that are not ranked at this level because
	// generator delay can explain them, in this competitor or another.
	Delayed []string `json:"delayed,omitempty"`

	fewest int64 // response times in one of the runs
	// blocks holds the metrics by block, NaN where there is none, the latencies
	// without generator delay, and the carried share.
	blocks    map[string][]float64
	rounded   map[string][]float64 // how far printing may have brought those from the truth
	yardstick bool                 // does not compete
}

// Value is one metric of one cell.
type Value struct {
	stats.Summary
	// Interval holds the median, at the level that so many runs permit.
	Interval  *stats.Interval `json:"interval,omitempty"`
	Published *float64        `json:"published,omitempty"`
}

// Marks are reasons not to rank a cell.
type Marks struct {
	Behind int `json:"behind,omitempty"`  // late runs: the generator did not keep its schedule
	Lossy  int `json:"lossy,omitempty"`   // runs that lost requests
	Not200 int `json:"not_200,omitempty"` // runs with replies other than 2xx
	Failed int `json:"failed,omitempty"`  // runs without a measurement
	// OneServer marks runs that say nothing of a scheduler that hashes.
	OneServer int `json:"one_server,omitempty"`
	Missing   int `json:"missing,omitempty"` // runs that were planned and not made
}

// Ranked reports whether the cell may be compared.
func (c Cell) Ranked() bool {
	return c.Runs > 0 && len(c.Causes) == 0
}

// RankedBy reports whether the cell may be compared by a metric. One that lost
// requests may be by those that count what was answered; none may by a latency
// that generator delay can explain.
func (c Cell) RankedBy(metric string) bool {
	if slices.Contains(c.Delayed, metric) {
		return false
	}
	return c.Ranked() || slices.Contains(carried, metric) && c.carries()
}

// New makes the report of a stored run.
func New(r *record.Run) (*Report, error) {
	env := r.Environment
	// The engines of a stored run need not be known to this version.
	s, err := study.Parse(env.Study, []byte(env.StudyText), nil)
	if err != nil {
		return nil, fmt.Errorf("the study stored with the run: %w", err)
	}
	rep := &Report{
		Study: s.Name, Title: s.Title, Source: s.Source, Hypothesis: s.Hypothesis, Setting: setting(env, s, r.Samples),
		Configurations: env.Configurations,
		Planned:        env.Plan.Cells * env.Plan.Repeats, stored: r,
	}
	for _, smp := range r.Samples {
		if smp.Error == "" {
			rep.Measured++
		}
	}
	if p := s.Published; p != nil {
		rep.Published = &PublishedClaims{p.VirtualAddress, p.Conclusion, p.Notes, map[string]string{}}
		for _, m := range metrics {
			if t, ok := p.Table(m.published); ok {
				rep.Published.Labels[m.Key] = t.Label
			}
		}
	}
	rep.Power = PowerOf(env.Plan, s)
	rep.sections(env.Plan, r.Samples, s)
	rep.Tools = rep.tools()
	rep.Verdict = rep.verdict()
	rep.Caveats = append(caveats(r.Samples), unlikeWeights(r.Samples, s)...)
	rep.Notes = append(notes(rep, r.Samples, r.Repeated), noPlain(r.Samples, newPlain(r.Samples))...)
	return rep, nil
}

// sections puts conditions that differ in their level only into one table.
func (rep *Report) sections(plan record.Plan, samples []record.Sample, s *study.Study) {
	cells := map[record.Cell][]record.Sample{}
	for _, smp := range samples {
		cells[smp.Cell] = append(cells[smp.Cell], smp)
	}
	at := map[record.Condition]int{}
	forwarding := newPlain(samples)
	for _, condition := range plan.Conditions {
		i, ok := at[condition.Group()]
		if !ok {
			i = len(rep.Sections)
			at[condition.Group()] = i
			rep.Sections = append(rep.Sections, newSection(condition, plan))
		}
		row := Row{Condition: condition}
		for _, c := range plan.Competitors {
			key := record.Cell{Competitor: c, Condition: condition}
			found := cell(cells[key], forwarding[condition], plan.Repeats, s, key)
			found.yardstick = c.Scheduler == "" && balancers(plan) > 1
			row.Cells = append(row.Cells, found)
		}
		row.findDelay()
		row.judge(s, plan)
		rep.Sections[i].Rows = append(rep.Sections[i].Rows, row)
	}
}

// balancers counts the competitors that balance. Beside several, one that does
// not is a yardstick and competes with none; beside one, it is the question.
func balancers(plan record.Plan) (n int) {
	for _, c := range plan.Competitors {
		if c.Scheduler != "" {
			n++
		}
	}
	return n
}

func newSection(c record.Condition, plan record.Plan) Section {
	sec := Section{Title: sectionTitle(c, plan), LevelUnit: c.LevelUnit()}
	for _, p := range plan.Competitors {
		sec.Columns = append(sec.Columns, p.Name)
	}
	return sec
}

// sectionTitle says what all conditions of a section share, and of that what
// other sections do not.
func sectionTitle(c record.Condition, plan record.Plan) string {
	words := []string{"open loop", c.Arrivals + " arrivals"}
	if c.Closed() {
		words = []string{"closed loop"}
		if c.Requests > 0 {
			words = append(words, fmt.Sprintf("%d users", c.Users))
		}
	}
	for _, x := range []struct {
		name string
		of   func(record.Condition) string
	}{
		{c.Family, func(c record.Condition) string { return c.Family }},
		{"request " + c.Call, func(c record.Condition) string { return "request " + c.Call }},
		{c.Tool, func(c record.Condition) string { return c.Tool }},
	} {
		if slices.ContainsFunc(plan.Conditions, func(other record.Condition) bool { return x.of(other) != x.name }) {
			words = append(words, x.name)
		}
	}
	return strings.Join(words, ", ")
}

// cell sums up the repeats of one cell; plain is plain forwarding under the
// same condition, by block.
func cell(samples []record.Sample, plain map[int]record.Sample, planned int, s *study.Study, key record.Cell) Cell {
	c := Cell{
		Competitor: key.Competitor, Values: map[string]Value{}, Loss: map[string]int{},
		Spread: map[string]float64{}, blocks: map[string][]float64{}, rounded: map[string][]float64{},
	}
	if key.Measurable() {
		c.Marks.Missing = max(0, planned-len(samples))
	}
	replies := 0
	for _, smp := range samples {
		if smp.Error != "" || smp.Load == nil {
			c.Marks.Failed++
			continue
		}
		if c.Runs++; c.Runs == 1 || smp.Load.Response.Count < c.fewest {
			c.fewest = smp.Load.Response.Count
		}
		c.mark(smp.Load)
		if smp.Load.Generator.Behind {
			c.Late = append(c.Late, smp.Block)
		}
		for _, m := range metrics {
			if v, ok := m.of(smp, plainOf(plain, smp)); ok && tells(smp.Load, m.fields...) {
				c.enter(m.Key, smp.Block, v)
				c.enterRounding(m.Key, smp)
			}
		}
		c.enterUndelayed(smp)
		if !key.Closed() {
			c.enter(carriedShare, smp.Block, carriedOf(smp))
		}
		for name, n := range smp.Load.PerServer {
			c.Spread[name] += float64(n)
			replies += n
		}
	}
	for name := range c.Spread {
		c.Spread[name] /= float64(max(1, replies))
	}
	for _, m := range metrics {
		v := value(stats.Present(c.blocks[m.Key]))
		if p, ok := s.Published.Figure(m.published, key.Family, key.Call, key.PublishedLevel(), key.Name); ok && m.published != "" {
			v.Published = &p
		}
		c.Values[m.Key] = v
	}
	c.explain(samples, key.Condition, s)
	if slices.ContainsFunc(c.Causes, func(x Cause) bool { return x.Kind == OneAddress }) {
		c.Marks.OneServer = c.Runs
	}
	return c
}

// level is what intervals are to reach.
const level = 0.95

// value sums up one metric of one cell.
func value(samples []float64) Value {
	v := Value{Summary: stats.Summarize(samples)}
	if len(samples) > 1 {
		i := stats.MedianInterval(samples, level)
		v.Interval = &i
	}
	return v
}

// enter puts a figure into its block, from 1.
func (c *Cell) enter(key string, block int, v float64) {
	for len(c.blocks[key]) < block {
		c.blocks[key] = append(c.blocks[key], math.NaN())
	}
	c.blocks[key][block-1] = v
}

// mark counts what speaks against ranking a run.
func (c *Cell) mark(r *load.Result) {
	c.Scheduled += r.Scheduled
	c.Lost += r.Loss.Total()
	for cause, n := range lossOf(r.Loss) {
		if n > 0 {
			c.Loss[cause] += n
		}
	}
	if r.Generator.Behind {
		c.Marks.Behind++
	}
	if r.Loss.Total() > 0 {
		c.Marks.Lossy++
	}
	if otherReplies(r) > 0 {
		c.Marks.Not200++
	}
}

// causeNames orders the causes of loss.
var causeNames = []string{"client", "refused", "reset", "timeout", "other", "unnamed"}

func lossOf(l load.Loss) map[string]int {
	return map[string]int{
		"client": l.Client.Total(), "refused": l.Refused, "reset": l.Reset, "timeout": l.Timeout,
		"other": l.Unreachable + l.Truncated + l.Malformed, "unnamed": l.Unnamed,
	}
}

// perConnection divides a time by the connections it was spent on, warm-up
// included, in microseconds.
func perConnection(t time.Duration, r *load.Result) (float64, bool) {
	if r.Generator.Connections == 0 {
		return 0, false
	}
	return float64(t.Nanoseconds()) / 1e3 / float64(r.Generator.Connections), true
}
