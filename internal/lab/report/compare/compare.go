// SPDX-License-Identifier: Apache-2.0

// Package compare compares two stored runs of the same cells, measured at
// different times, by different versions or on different machines.
//
// It reads what report makes of each run and asks package stats. It measures
// nothing, and it cannot say why two runs differ: it names what else is
// different between them.
package compare

import (
	"fmt"
	"os"
	"slices"

	"imbang/internal/lab/record"
	"imbang/internal/lab/report"
	"imbang/internal/lab/stats"
)

// Comparison is everything that is said about two runs.
type Comparison struct {
	A Side `json:"a"`
	B Side `json:"b"`
	// Environment names what is not the same in both.
	Environment []Change `json:"environment"`
	Metrics     []Metric `json:"metrics"`
	// NotCompared are cells of both runs in which one was not measured well.
	NotCompared []Excluded `json:"not_compared,omitempty"`
	OnlyA       []string   `json:"only_a,omitempty"`
	OnlyB       []string   `json:"only_b,omitempty"`
	Loss        []Loss     `json:"loss,omitempty"`
	Alpha       float64    `json:"alpha"`
	Smallest    float64    `json:"smallest"`
}

// Side is one of the runs.
type Side struct {
	Dir     string `json:"dir"`
	Study   string `json:"study"`
	Started string `json:"started"`
	Runs    int    `json:"runs"` // measured
}

// Change is one thing that differs between the runs.
type Change struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Metric compares one quantity in all cells that both runs measured well.
type Metric struct {
	Key   string `json:"key"`
	Title string `json:"title"`
	Unit  string `json:"unit"`
	Cells []Cell `json:"cells"`

	decimals int
	lowest   bool
}

// Cell is one cell in both runs.
type Cell struct {
	record.Cell
	MedianA float64 `json:"median_a"`
	MedianB float64 `json:"median_b"`
	stats.Shift
}

// Excluded is a cell that is not compared, and why.
type Excluded struct {
	Cell   string   `json:"cell"`
	Causes []string `json:"causes"`
}

// Loss is what a cell lost in both runs, of how much.
type Loss struct {
	Cell       string `json:"cell"`
	LostA      int    `json:"lost_a"`
	ScheduledA int    `json:"scheduled_a"`
	LostB      int    `json:"lost_b"`
	ScheduledB int    `json:"scheduled_b"`
}

// compared are the metrics that are compared: those that answer studies, and
// what the answers cost. The achieved rate is the plan's in an open loop.
var compared = []string{"response_time", "response_time_p50", "response_time_p99", "throughput", "reply_rate", "cpu_director", "cpu_servers", "cpu_machine"}

// Dirs compares the runs stored in two directories.
func Dirs(a, b string) (*Comparison, error) {
	repA, err := read(a)
	if err != nil {
		return nil, err
	}
	repB, err := read(b)
	if err != nil {
		return nil, err
	}
	c, err := New(repA, repB)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", a, b, err)
	}
	c.A.Dir, c.B.Dir = a, b
	return c, nil
}

func read(dir string) (*report.Report, error) {
	switch st, err := os.Stat(dir); {
	case err != nil:
		return nil, fmt.Errorf("results: %w", err)
	case !st.IsDir():
		return nil, fmt.Errorf("results: %s is a file: name the directory of a run", dir)
	}
	run, err := record.Read(dir)
	if err != nil {
		return nil, err
	}
	rep, err := report.New(run)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return rep, nil
}

// New compares two runs.
func New(a, b *report.Report) (*Comparison, error) {
	q := stats.NewQuestion(true)
	c := &Comparison{A: side(a), B: side(b), Environment: changes(a.Stored(), b.Stored()), Alpha: q.Alpha, Smallest: q.Smallest}
	if c.Environment == nil {
		c.Environment = []Change{}
	}
	cellsA, cellsB := cellsOf(a), cellsOf(b)
	var pairs []pair
	for _, x := range cellsA.order {
		if y, ok := cellsB.at[x]; ok {
			pairs = append(pairs, pair{x, cellsA.at[x], y})
		} else {
			c.OnlyA = append(c.OnlyA, x.String())
		}
	}
	for _, y := range cellsB.order {
		if _, ok := cellsA.at[y]; !ok {
			c.OnlyB = append(c.OnlyB, y.String())
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("these runs share no cell: the same competitor under the same condition (%s of study %s, %s of study %s)",
			some(c.OnlyA), a.Study, some(c.OnlyB), b.Study)
	}
	good := c.exclude(pairs)
	for _, key := range compared {
		c.compare(report.MetricOf(key), good, q)
	}
	return c, nil
}

// some gives an example of cells.
func some(cells []string) string {
	if len(cells) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d such as %s", len(cells), cells[0])
}

func side(r *report.Report) Side {
	return Side{Study: r.Study, Started: r.Stored().Environment.Started.UTC().Format("2006-01-02 15:04 UTC"), Runs: r.Measured}
}

// pair is a cell that both runs have.
type pair struct {
	cell record.Cell
	a, b report.Cell
}

// cells are those of a run, in the order of its tables.
type cells struct {
	order []record.Cell
	at    map[record.Cell]report.Cell
}

func cellsOf(r *report.Report) cells {
	list := cells{at: map[record.Cell]report.Cell{}}
	for _, sec := range r.Sections {
		for _, row := range sec.Rows {
			for _, c := range row.Cells {
				key := record.Cell{Competitor: c.Competitor, Condition: row.Condition}
				list.order, list.at[key] = append(list.order, key), c
			}
		}
	}
	return list
}

// exclude keeps the pairs that may be compared, and says why of the others. A
// cell whose every run was late says nothing of either run.
func (c *Comparison) exclude(pairs []pair) (good []pair) {
	for _, p := range pairs {
		var causes []string
		for _, x := range []struct {
			name string
			cell report.Cell
		}{{"A", p.a}, {"B", p.b}} {
			for _, why := range x.cell.NotRanked() {
				causes = append(causes, x.name+": "+why)
			}
		}
		if p.a.Lost+p.b.Lost > 0 {
			c.Loss = append(c.Loss, Loss{p.cell.String(), p.a.Lost, p.a.Scheduled, p.b.Lost, p.b.Scheduled})
		}
		if len(causes) > 0 {
			c.NotCompared = append(c.NotCompared, Excluded{p.cell.String(), causes})
			continue
		}
		good = append(good, p)
	}
	return good
}

// compare asks for the differences of one metric in all cells at once. What it
// claims holds with late runs and without, and with generator delay and without.
func (c *Comparison) compare(m report.Metric, pairs []pair, q stats.Question) {
	out := Metric{Key: m.Key, Title: m.Title, Unit: m.Unit, decimals: m.Decimals, lowest: m.Lowest}
	var asked []pair
	for _, p := range pairs {
		va, vb := p.a.Values[m.Key], p.b.Values[m.Key]
		if va.N == 0 || vb.N == 0 || va.Min <= 0 || vb.Min <= 0 || m.Key == "reply_rate" && !p.cell.Closed() {
			continue // a figure of 0 has no ratio to others
		}
		if slices.Contains(p.a.Delayed, m.Key) || slices.Contains(p.b.Delayed, m.Key) {
			c.NotCompared = append(c.NotCompared, Excluded{p.cell.String(), []string{m.Title + ": generator delay can explain it"}})
			continue
		}
		asked = append(asked, p)
		out.Cells = append(out.Cells, Cell{Cell: p.cell, MedianA: va.Median, MedianB: vb.Median})
	}
	for i, s := range shifts(m.Key, asked, q) {
		out.Cells[i].Shift = s
	}
	if len(out.Cells) > 0 {
		c.Metrics = append(c.Metrics, out)
	}
}
