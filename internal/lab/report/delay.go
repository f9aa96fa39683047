// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/stats"
)

// Generator delay is the time from the moment a request was due to the moment
// the generator started it. Response times contain it, since they count from
// the moment the request was due. What delay can explain is not ranked:
//
//   - A metric is not ranked at a level if delay can explain it in one of the
//     competitors (Cell.explained): then most of what was measured there may
//     be the generator's. It is ranked for none of them, so that who is left
//     out does not depend on who is better.
//   - A difference that is claimed must also be found in the response times
//     with the delay taken off (Cell.undelayed), which count from the actual
//     start of each request.
//
// The second rule covers what delay adds to a request directly. Requests that
// start late may also start together and wait for each other at the servers;
// that adds no more than the delay itself, which the first rule bounds.

// mostDelay is the share of a latency up to which generator delay at the same
// statistic, mean or percentile, does not explain it.
const mostDelay = 0.5

// latency is a metric that contains generator delay.
type latency struct {
	key      string
	delay    string // the metric that is the delay at the same statistic
	without  string // the blocks that hold the latency without delay
	response func(load.Latency) float64
}

// latencies are all of them.
var latencies = []latency{
	{"response_time", "generator_delay_mean", "service_time", func(l load.Latency) float64 { return l.MeanMS }},
	{"response_time_p50", "generator_delay_p50", "service_time_p50", func(l load.Latency) float64 { return l.P50MS }},
	{"response_time_p99", "generator_delay_p99", "service_time_p99", func(l load.Latency) float64 { return l.P99MS }},
}

// enterUndelayed keeps the latencies of a run without generator delay. Tools
// that count response times from the actual start have them already.
func (c *Cell) enterUndelayed(s record.Sample) {
	for _, l := range latencies {
		v, ok := metric(l.key).value(s)
		if !ok || !tells(s.Load, metric(l.key).fields...) {
			continue
		}
		if s.Load.Service.Count > 0 && tells(s.Load, "service") {
			v = l.response(s.Load.Service)
		}
		c.enter(l.without, s.Block, v)
	}
}

// undelayed is the series of a latency with generator delay taken off each
// request; of any other metric it is the series.
func (c Cell) undelayed(key string) stats.Series {
	s := c.series(key)
	for _, l := range latencies {
		if l.key == key {
			s.Values = slices.Clone(c.blocks[l.without])
		}
	}
	return s
}

// delayShare is the generator delay at the statistic of a latency, as a share
// of that latency: the median of the runs, late ones included. ok is false for
// other metrics and where the tool does not report its delay.
func (c Cell) delayShare(key string) (share float64, ok bool) {
	for _, l := range latencies {
		if l.key != key {
			continue
		}
		var shares []float64
		whole, delay := c.blocks[key], c.blocks[l.delay]
		for i := range min(len(whole), len(delay)) {
			if whole[i] > 0 && delay[i] >= 0 { // not NaN
				shares = append(shares, delay[i]/whole[i])
			}
		}
		if len(shares) > 0 {
			return stats.Summarize(shares).Median, true
		}
	}
	return 0, false
}

// explained reports whether generator delay can explain a metric of the cell.
func (c Cell) explained(key string) bool {
	share, ok := c.delayShare(key)
	return ok && share > mostDelay
}

// findDelay finds the metrics of a level that generator delay can explain, and
// adds them to the causes. Which competitor is better has no part in it.
func (row *Row) findDelay() {
	var causes []Cause
	for _, l := range latencies {
		var names, shares []string
		for _, c := range row.Cells {
			if c.explained(l.key) && c.Ranked() && !c.yardstick {
				share, _ := c.delayShare(l.key)
				names, shares = append(names, c.Name), append(shares, fmt.Sprintf("%.0f %% of it at %s", 100*share, c.Name))
			}
		}
		if len(names) == 0 {
			continue
		}
		for i := range row.Cells {
			row.Cells[i].Delayed = append(row.Cells[i].Delayed, l.key)
		}
		causes = append(causes, Cause{Kind: GeneratorDelay, Cells: names, Text: fmt.Sprintf(
			"%s is not ranked, as the generator's own delay at the same statistic is %s", lower(metric(l.key).Title), strings.Join(shares, ", "))})
	}
	row.addDelay(causes)
}

// addDelay makes one cause of those of the metrics.
func (row *Row) addDelay(causes []Cause) {
	if len(causes) == 0 {
		return
	}
	all := Cause{Kind: GeneratorDelay}
	var texts []string
	for _, c := range causes {
		texts = append(texts, c.Text)
		for _, name := range c.Cells {
			if !slices.Contains(all.Cells, name) {
				all.Cells = append(all.Cells, name)
			}
		}
	}
	all.Text = strings.Join(texts, "; ")
	row.Causes = gather(row.Causes, []Cause{all}, "")
}

// delayed reports whether a metric is not ranked at this level because of
// generator delay.
func (row *Row) delayed(key string) bool {
	return slices.ContainsFunc(row.Cells, func(c Cell) bool { return slices.Contains(c.Delayed, key) })
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }
