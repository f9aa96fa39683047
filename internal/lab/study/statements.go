// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
)

// Statement is a figure that a publication gives outside its tables, about a
// figure or two of a table.
type Statement struct {
	Where  string // in the publication, such as "the text"
	Metric Metric
	Family string
	Of     string // the competitor
	// Level is that of a single figure, which is Value, in the metric's unit.
	Level, Value float64
	// Percent is by how much Of's mean over all levels exceeds that of Over,
	// where Over is given.
	Over    string
	Percent float64
}

// Replies are what the output of a load tool in the publication tells of the
// replies to one request.
type Replies struct {
	Of     string `yaml:"of"`      // the request
	Count  int    `yaml:"count"`   // 0 where only the kind is known
	Not2xx int    `yaml:"not_2xx"` // of Count
	Failed int    `yaml:"failed"`  // of Count, as the tool counts failures
	Only   string `yaml:"only"`    // the one class that all replies had, such as 3xx
}

type statementDoc struct {
	Where   string  `yaml:"where"`
	Metric  string  `yaml:"metric"`
	Family  string  `yaml:"family"`
	Of      string  `yaml:"of"`
	Level   float64 `yaml:"level"`
	Value   float64 `yaml:"value"`
	Over    string  `yaml:"over"`
	Percent float64 `yaml:"percent"`
}

// TableOf is the published table of a metric for a family, if there is one.
func (p *Published) TableOf(m Metric, family string) (Table, bool) {
	if p == nil {
		return Table{}, false
	}
	i := slices.IndexFunc(p.Tables, func(t Table) bool { return t.Metric == m && (t.Family == "" || t.Family == family) })
	if i < 0 {
		return Table{}, false
	}
	return p.Tables[i], true
}

// statements checks that each is about figures that a table has.
func (c *checker) statements(d *publishedDoc, p *Published) {
	for i, x := range d.Statements {
		path := fmt.Sprintf("published.statements[%d]", i)
		t, ok := p.TableOf(Metric(x.Metric), x.Family)
		if !ok {
			c.refuse(path+".metric", "%q has no published table for family %q: a statement is compared with a table", x.Metric, x.Family)
			continue
		}
		if x.Where == "" {
			c.refuse(path+".where", "missing: want the place in the publication, such as the text")
		}
		switch {
		case x.Over != "" && x.Level == 0 && x.Value == 0:
			for key, name := range map[string]string{"of": x.Of, "over": x.Over} {
				if !t.hasColumn(name) {
					c.refuse(path+"."+key, "%q is no column of the table of %s", name, x.Metric)
				}
			}
		case x.Over == "" && x.Percent == 0:
			if _, ok := t.Values[x.Level][x.Of]; !ok {
				c.refuse(path+".level", "the table of %s has no figure of %q at %g", x.Metric, x.Of, x.Level)
			}
		default:
			c.refuse(path, "want either of, over and percent, or of, level and value")
		}
		p.Statements = append(p.Statements, Statement{
			Where: x.Where, Metric: Metric(x.Metric), Family: x.Family, Of: x.Of, Level: x.Level, Value: x.Value, Over: x.Over, Percent: x.Percent,
		})
	}
	for i, r := range d.Replies {
		path := fmt.Sprintf("published.replies[%d]", i)
		if r.Of == "" {
			c.refuse(path+".of", "missing: want the request")
		}
		if max(r.Not2xx, r.Failed) > r.Count || min(r.Not2xx, r.Failed) < 0 {
			c.refuse(path+".count", "%d replies, but %d not 2xx and %d failed", r.Count, r.Not2xx, r.Failed)
		}
		if r.Not2xx == 0 && r.Failed == 0 && r.Only == "" {
			c.refuse(path, "want not_2xx, failed or only")
		}
	}
	p.Replies = d.Replies
}

func (t Table) hasColumn(name string) bool {
	for _, row := range t.Values {
		if _, ok := row[name]; ok {
			return true
		}
	}
	return false
}
