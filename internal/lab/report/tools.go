// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// ToolTable compares what different tools report of the same load: of the same
// request at the same rate, or of the same number of users and requests.
type ToolTable struct {
	Title   string    `json:"title"`
	Columns []string  `json:"columns"` // competitors
	Rows    []ToolRow `json:"rows"`
}

// ToolRow is one metric by one tool.
type ToolRow struct {
	Tool   string `json:"tool"`
	Load   string `json:"load,omitempty"` // its own parameters, in words
	Metric string `json:"metric"`         // a key
	Title  string `json:"title"`          // of the metric
	Unit   string `json:"unit"`
	// Values are in the order of the columns; without a figure N is 0.
	Values []Value `json:"values"`
	// Times is each median as a multiple of the built-in generator's, 0 where
	// there is none.
	Times []float64 `json:"times_built_in,omitempty"`
}

// toolMetrics are what all tools report.
var toolMetrics = []string{"reply_rate", "response_time"}

// load is what conditions of different tools share when they ask for the same.
func sameLoad(c record.Condition) record.Condition {
	return record.Condition{Family: c.Family, Call: c.Call, Rate: c.Rate, Users: c.Users, Requests: c.Requests, KeepAlive: c.KeepAlive}
}

// tools makes a table of each load that several tools made.
func (rep *Report) tools() (tables []ToolTable) {
	by := map[record.Condition][]Row{}
	var order []record.Condition
	columns := map[record.Condition][]string{}
	for _, sec := range rep.Sections {
		for _, row := range sec.Rows {
			key := sameLoad(row.Condition)
			if len(by[key]) == 0 {
				order = append(order, key)
				columns[key] = sec.Columns
			}
			by[key] = append(by[key], row)
		}
	}
	for _, key := range order {
		rows := by[key]
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Tool != rows[0].Tool }) {
			continue
		}
		slices.SortStableFunc(rows, func(a, b Row) int { return -cmp.Compare(built(a), built(b)) })
		table := ToolTable{Title: loadWords(rows[0].Condition), Columns: columns[key]}
		for _, m := range metrics {
			if !slices.Contains(toolMetrics, m.Key) {
				continue
			}
			for _, row := range rows {
				table.Rows = append(table.Rows, toolRow(m, row, rows[0]))
			}
		}
		tables = append(tables, table)
	}
	return tables
}

// built is 1 of the built-in generator, which comes first.
func built(r Row) int {
	if r.Tool == study.BuiltIn {
		return 1
	}
	return 0
}

// loadWords name the load without its tool.
func loadWords(c record.Condition) string {
	c.Tool, c.Arrivals = study.BuiltIn, ""
	return c.String()
}

func toolRow(m Metric, row, first Row) ToolRow {
	out := ToolRow{Tool: row.Tool, Metric: m.Key, Title: m.Title, Unit: m.Unit}
	if !row.Closed() {
		out.Load = row.Arrivals + " arrivals"
		if row.Connections > 0 {
			out.Load += fmt.Sprintf(", %d connections", row.Connections)
		}
	}
	compared := row.Tool != study.BuiltIn && first.Tool == study.BuiltIn
	for i, c := range row.Cells {
		v := c.Values[m.Key]
		out.Values = append(out.Values, v)
		if !compared {
			continue
		}
		times := 0.0
		if base := first.Cells[i].Values[m.Key]; v.N > 0 && base.N > 0 && base.Median > 0 {
			times = v.Median / base.Median
		}
		out.Times = append(out.Times, times)
	}
	return out
}

// textTools prints what different tools report of the same load.
func (rep *Report) textTools(p *printer) {
	if len(rep.Tools) == 0 {
		return
	}
	p.linef("")
	p.linef("== Tools: medians of the same load by tool, and as multiples of the built-in generator's")
	for _, t := range rep.Tools {
		p.linef("")
		p.linef("%s", t.Title)
		sec := Section{Columns: t.Columns}
		p.linef("%-36s %s", "", joinCells(sec, t.Columns))
		for _, r := range t.Rows {
			p.linef("%-36s %s", fmt.Sprintf("%s: %s [%s]", r.Tool, r.Title, r.Unit), joinCells(sec, r.figures()))
			if len(r.Times) > 0 {
				p.linef("%-36s %s", "  times the built-in generator's", joinCells(sec, r.multiples()))
			}
		}
		for _, r := range t.Rows[:len(t.Rows)/len(toolMetrics)] {
			if r.Load != "" {
				p.linef("  %s: %s", r.Tool, r.Load)
			}
		}
	}
}

func (r ToolRow) figures() (list []string) {
	for _, v := range r.Values {
		text := "-"
		if v.N > 0 {
			text = fmt.Sprintf("%.2f", v.Median)
		}
		list = append(list, text)
	}
	return list
}

func (r ToolRow) multiples() (list []string) {
	for _, x := range r.Times {
		text := "-"
		if x > 0 {
			text = fmt.Sprintf("%.2f", x)
		}
		list = append(list, text)
	}
	return list
}

func joinCells(sec Section, cells []string) (line string) {
	for _, c := range cells {
		line += fmt.Sprintf("%*s", sec.width(), c)
	}
	return line
}
