// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"maps"
	"slices"

	"imbang/internal/lab/stats"
	"imbang/internal/lab/study"
)

// Table is one quantity of all cells: rates down, schedulers across.
type Table struct {
	Key     string   `json:"key"`
	Label   string   `json:"label,omitempty"` // the original's, such as Table 4.1
	Title   string   `json:"title"`
	Unit    string   `json:"unit"`
	Meaning string   `json:"meaning,omitempty"`
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rates"`

	decimals int
}

// Row is one asked rate.
type Row struct {
	Rate  float64 `json:"rate"`
	Cells []Cell  `json:"cells"`
}

// Cell is the runs of one cell; N is 0 without any.
type Cell struct {
	Scheduler string `json:"scheduler"`
	stats.Summary
	Published *float64 `json:"published,omitempty"`
	Differs   bool     `json:"differs,omitempty"` // the published figure is not that of the runs
}

// quantity is a table that can be made.
type quantity struct {
	key, title, unit, meaning string
	decimals                  int
	published                 study.Metric
	value                     func(*Result) *float64
}

// Keys of the tables that findings look at.
const (
	keyThroughput = "throughput"
	keyResponse   = "response_time"
)

// quantities are printed in this order; those without a value in any run are
// left out.
var quantities = []quantity{
	{keyThroughput, "Throughput", "KB/s", "requests and replies above TCP, 1 KB = 1024 bytes (httperf's Net I/O)", 1, study.Throughput,
		func(r *Result) *float64 { return r.ThroughputKBs }},
	{keyResponse, "Response time, mean", "ms", "", 1, study.ResponseTime, func(r *Result) *float64 { return r.ResponseMS }},
	{"request_loss", "Request loss", "connections", "refused or reset (connrefused + connreset)", 0, "", func(r *Result) *float64 {
		return sumOf(r, "connrefused", "connreset")
	}},
	{"client_cpu", "CPU of the client", "%", "of one processor", 1, "", func(r *Result) *float64 {
		if r.CPU == nil {
			return nil
		}
		return &r.CPU.Total
	}},
	{"achieved_rate", "Achieved rate", "connections/s", "begun, over the whole duration", 1, "", func(r *Result) *float64 { return r.ConnectionRate }},
	{"not_begun", "Connections never begun", "connections", "the client had no descriptor, address or table entry left", 0, "", func(r *Result) *float64 {
		return sumOf(r, clientLimits...)
	}},
	{"timed_out", "Connections timed out", "connections", "begun and given up by the client (client-timo)", 0, "", func(r *Result) *float64 {
		return sumOf(r, "client-timo")
	}},
}

// sumOf adds causes of errors; nil if the tool does not tell them.
func sumOf(r *Result, causes ...string) *float64 {
	var sum float64
	for _, c := range causes {
		n, ok := r.Errors[c]
		if !ok {
			return nil
		}
		sum += float64(n)
	}
	return &sum
}

// tables makes the tables of runs that are named for their cells.
func tables(s *study.Study, cells map[cellKey][]*Result, cmp *Comparison) []Table {
	if len(cells) == 0 {
		return nil
	}
	columns, rates := axes(s, cells)
	var out []Table
	for _, q := range quantities {
		t := Table{Key: q.key, Title: q.title, Unit: q.unit, Meaning: q.meaning, Columns: columns, decimals: q.decimals}
		value := q.value
		if cmp != nil && q.published != "" {
			table, _ := s.Published.Table(q.published)
			t.Label = table.Label
			if q.published == study.ResponseTime {
				value, t.Meaning = cmp.response.value, cmp.Response
			}
		}
		any := false
		for _, rate := range rates {
			row := Row{Rate: rate}
			for _, name := range columns {
				c := cell(cellKey{name, rate}, cells, value)
				if v, ok := published(s, q.published, rate, name); ok {
					c.Published = &v
					c.Differs = c.N > 0 && differs(v, c.Summary)
				}
				any = any || c.N > 0
				row.Cells = append(row.Cells, c)
			}
			t.Rows = append(t.Rows, row)
		}
		if any {
			out = append(out, t)
		}
	}
	return out
}

func cell(key cellKey, cells map[cellKey][]*Result, value func(*Result) *float64) Cell {
	var values []float64
	for _, r := range cells[key] {
		if v := value(r); v != nil {
			values = append(values, *v)
		}
	}
	return Cell{Scheduler: key.scheduler, Summary: stats.Summarize(values)}
}

func published(s *study.Study, m study.Metric, rate float64, scheduler string) (float64, bool) {
	if s == nil || m == "" {
		return 0, false
	}
	table, _ := s.Published.Table(m)
	v, ok := table.Values[rate][scheduler]
	return v, ok
}

// axes are the schedulers and rates that occur: the study's order, then the
// alphabet's.
func axes(s *study.Study, cells map[cellKey][]*Result) (columns []string, rates []float64) {
	var order []string
	if s != nil {
		order = s.Schedulers()
	}
	names, seen := map[string]bool{}, map[float64]bool{}
	for key := range cells {
		names[key.scheduler], seen[key.rate] = true, true
	}
	for _, name := range order {
		if names[name] {
			columns = append(columns, name)
			delete(names, name)
		}
	}
	columns = append(columns, slices.Sorted(maps.Keys(names))...)
	return columns, slices.Sorted(maps.Keys(seen))
}
