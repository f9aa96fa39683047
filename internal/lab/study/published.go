// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
	"strconv"
)

// Published are the figures of somebody else's run of the experiment.
type Published struct {
	VirtualAddress string // a label; the lab uses private addresses
	Conclusion     string
	Notes          []string
	Tables         []Table
	// Statements and Replies are figures outside the tables, from which
	// `imbang-lab import` finds contradictions.
	Statements []Statement
	Replies    []Replies
}

// Metric names a quantity that a study can publish.
type Metric string

// The metrics that published tables can hold.
const (
	Throughput   Metric = "throughput"    // KB/s, of 1024 bytes
	ResponseTime Metric = "response_time" // ms, mean
	RequestRate  Metric = "request_rate"  // replies per second
	Loss         Metric = "loss"          // % of requests
)

// units are the only units a published table may have: the report sets its
// own figures beside them without converting.
var units = map[Metric]string{Throughput: "KB/s", ResponseTime: "ms", RequestRate: "1/s", Loss: "%"}

// Table is one published table. Where Family or Call is empty it stands
// beside every one.
type Table struct {
	Metric       Metric
	Label        string // such as Table 4.1
	Unit         string
	Family, Call string
	// Values by level (rate, requests or users) and competitor's name.
	Values map[float64]map[string]float64
}

// Figure is the published value for one cell, if there is one.
func (p *Published) Figure(m Metric, family, call string, level float64, competitor string) (float64, bool) {
	if p == nil {
		return 0, false
	}
	for _, t := range p.Tables {
		if t.Metric != m || t.Family != "" && t.Family != family || t.Call != "" && t.Call != call {
			continue
		}
		if v, ok := t.Values[level][competitor]; ok {
			return v, true
		}
	}
	return 0, false
}

// Table is the first published table of a metric, if there is one.
func (p *Published) Table(m Metric) (Table, bool) {
	if p == nil {
		return Table{}, false
	}
	i := slices.IndexFunc(p.Tables, func(t Table) bool { return t.Metric == m })
	if i < 0 {
		return Table{}, false
	}
	return p.Tables[i], true
}

type publishedDoc struct {
	VirtualAddress string     `yaml:"virtual_address"`
	Conclusion     string     `yaml:"conclusion"`
	Notes          []string   `yaml:"notes"`
	Tables         []tableDoc `yaml:"tables"`

	Statements []statementDoc `yaml:"statements"`
	Replies    []Replies      `yaml:"replies"`
}

type tableDoc struct {
	Metric  string               `yaml:"metric"`
	Label   string               `yaml:"label"`
	Unit    string               `yaml:"unit"`
	Family  string               `yaml:"family"`
	Call    string               `yaml:"call"`
	Columns []string             `yaml:"columns"`
	Rows    map[string][]float64 `yaml:"rows"`
}

// published checks the published figures; nil when the study has none.
func (c *checker) published(d *publishedDoc, s *Study) *Published {
	if d == nil {
		return nil
	}
	p := &Published{VirtualAddress: d.VirtualAddress, Conclusion: d.Conclusion, Notes: d.Notes}
	for i, t := range d.Tables {
		p.Tables = append(p.Tables, c.table(fmt.Sprintf("published.tables[%d]", i), t, s))
	}
	c.statements(d, p)
	return p
}

func (c *checker) table(path string, d tableDoc, s *Study) Table {
	t := Table{
		Metric: Metric(d.Metric), Label: d.Label, Unit: d.Unit, Family: d.Family, Call: d.Call,
		Values: map[float64]map[string]float64{},
	}
	switch unit, known := units[t.Metric]; {
	case !known:
		c.refuse(path+".metric", "%q is unknown: want one of throughput, response_time, request_rate, loss", d.Metric)
	case d.Unit != unit:
		c.refuse(path+".unit", "%q: want %s, and figures converted to it", d.Unit, unit)
	}
	if d.Family != "" && !slices.Contains(s.Families, d.Family) {
		c.refuse(path+".family", "%q is not one of cluster.families", d.Family)
	}
	if d.Call != "" && !slices.ContainsFunc(s.Load.Calls, func(x Call) bool { return x.Name == d.Call }) {
		c.refuse(path+".call", "%q is not one of load.calls", d.Call)
	}
	c.columns(path+".columns", d.Columns, s)
	rows := c.keys(path + ".rows")
	if len(rows) == 0 {
		c.refuse(path+".rows", "missing: want one list of figures for each rate, number of requests or number of users")
	}
	for _, k := range rows {
		row := fmt.Sprintf("%s.rows.%s", path, k)
		level, err := strconv.ParseFloat(k, 64)
		if err != nil || level <= 0 {
			c.refuse(row, "%q is not a number: want a rate, a number of requests or of users", k)
			continue
		}
		if len(d.Rows[k]) != len(d.Columns) {
			c.refuse(row, "%d figures for %d columns: give one for each", len(d.Rows[k]), len(d.Columns))
			continue
		}
		t.Values[level] = map[string]float64{}
		for i, v := range d.Rows[k] {
			t.Values[level][d.Columns[i]] = v
		}
	}
	return t
}

// columns must be competitors, lest a figure stand beside nothing.
func (c *checker) columns(path string, names []string, s *Study) {
	if len(names) == 0 {
		c.refuse(path, "missing: want the names of competitors, one for each figure of a row")
	}
	var known []string
	for _, p := range s.Competitors {
		known = append(known, p.Name)
	}
	for i, n := range names {
		if !slices.Contains(known, n) {
			c.refuse(fmt.Sprintf("%s[%d]", path, i), "%q is no competitor of the study: they are %s", n, join(known))
		}
		if slices.Index(names, n) != i {
			c.refuse(fmt.Sprintf("%s[%d]", path, i), "%q is given twice: remove one", n)
		}
	}
}
