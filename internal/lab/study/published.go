// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
	"strconv"
)

// units are the only units a published table may have: the report sets its
// own figures beside them without converting.
var units = map[Metric]string{Throughput: "KB/s", ResponseTime: "ms"}

// published checks the published figures; nil when the study has none.
func (c *checker) published(d *publishedDoc) *Published {
	if d == nil {
		return nil
	}
	p := &Published{VirtualAddress: d.VirtualAddress, Conclusion: d.Conclusion, Notes: d.Notes, Tables: map[Metric]Table{}}
	for metric, t := range map[Metric]*tableDoc{Throughput: d.Throughput, ResponseTime: d.ResponseTime} {
		if t != nil {
			p.Tables[metric] = c.table(metric, t, d.Schedulers)
		}
	}
	if len(p.Tables) > 0 {
		c.list("published.schedulers", d.Schedulers, nil)
	}
	return p
}

func (c *checker) table(m Metric, d *tableDoc, schedulers []string) Table {
	path := "published." + string(m)
	if d.Unit != units[m] {
		c.refuse(path+".unit", "%q: want %s, and figures converted to it", d.Unit, units[m])
	}
	if len(d.Rows) == 0 {
		c.refuse(path+".rows", "missing: want one list of figures for each rate")
	}
	t := Table{Label: d.Label, Unit: d.Unit, Values: map[float64]map[string]float64{}}
	var keys []string
	for k := range d.Rows {
		keys = append(keys, k)
	}
	slices.Sort(keys) // so that of two mistakes the same one is named each time
	for _, k := range keys {
		row := fmt.Sprintf("%s.rows.%s", path, k)
		rate, err := strconv.ParseFloat(k, 64)
		if err != nil || rate <= 0 {
			c.refuse(row, "%q is not a rate: want connections per second", k)
			continue
		}
		if len(d.Rows[k]) != len(schedulers) {
			c.refuse(row, "%d figures for %d schedulers: give one for each of published.schedulers", len(d.Rows[k]), len(schedulers))
			continue
		}
		t.Values[rate] = map[string]float64{}
		for i, v := range d.Rows[k] {
			t.Values[rate][schedulers[i]] = v
		}
	}
	return t
}
