// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"time"

	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// Metric is a quantity with a table of its own.
type Metric struct {
	Key       string   // of JSON and the name of the CSV file
	Beside    []string // of a latency: the metrics of generator delay that are printed with it
	Title     string
	Name      string // in a sentence, where verdicts need one
	Unit      string
	Decimals  int
	Lowest    bool // less is better
	Meaning   string
	published study.Metric
	fields    []string // of the load's result, that it is made of
	value     func(record.Sample) (float64, bool)
	// beside, instead of value, also looks at the sample of plain forwarding
	// under the same condition in the same block.
	beside func(s, plain record.Sample) (float64, bool)
}

// of is the figure of a sample; plain is nil where there is none.
func (m Metric) of(s record.Sample, plain *record.Sample) (float64, bool) {
	switch {
	case m.beside == nil:
		return m.value(s)
	case plain == nil:
		return 0, false
	}
	return m.beside(s, *plain)
}

// timed reports whether a sample's response times are those of its requests. wrk adds some that it has not
// measured, for the requests that it held back while it waited for a reply (stats_correct in its src/wrk.c): the
// more an engine carries, the more of them it gets.
func timed(s record.Sample) bool { return s.Load.Replies > 0 && s.Tool != "wrk" }

// metrics are printed in this order.
var metrics = []Metric{
	{
		Key: "throughput", Title: "Throughput", Name: "throughput", Unit: "KB/s", Decimals: 1, published: study.Throughput,
		Meaning: "requests and replies above TCP, per second, 1 KB = 1024 bytes (httperf's Net I/O)",
		fields:  []string{"net_io_kbs"},
		value:   func(s record.Sample) (float64, bool) { return s.Load.NetIOKBs, true },
	},
	{
		Key: "response_time", Title: "Response time, mean", Name: "mean response time", Unit: "ms", Decimals: 2,
		Lowest: true, published: study.ResponseTime,
		Meaning: "from the moment a connection was due to the last byte of its reply, so waiting is never left out " +
			"(httperf's starts at the request and leaves out connecting)",
		Beside: []string{"generator_delay_mean"},
		fields: []string{"response.mean_ms"},
		value:  func(s record.Sample) (float64, bool) { return s.Load.Response.MeanMS, timed(s) },
	},
	{
		Key: "generator_delay_mean", Title: "Generator delay, mean", Unit: "ms", Decimals: 3, Lowest: true,
		Meaning: "from the moment a request was due to its actual start; response times contain it",
		fields:  []string{"generator.lateness"},
		value: func(s record.Sample) (float64, bool) {
			return s.Load.Generator.Lateness.MeanMS, s.Load.Generator.Lateness.Count > 0
		},
	},
	{
		Key: "response_time_p50", Title: "Response time, median", Unit: "ms", Decimals: 2, Lowest: true,
		Beside: []string{"generator_delay_p50"},
		fields: []string{"response.p50_ms"},
		value:  func(s record.Sample) (float64, bool) { return s.Load.Response.P50MS, timed(s) },
	},
	{
		Key: "generator_delay_p50", Title: "Generator delay, median", Unit: "ms", Decimals: 3, Lowest: true,
		fields: []string{"generator.lateness"},
		value: func(s record.Sample) (float64, bool) {
			return s.Load.Generator.Lateness.P50MS, s.Load.Generator.Lateness.Count > 0
		},
	},
	{
		Key: "response_time_p99", Title: "Response time, 99th percentile", Name: "99th percentile of response times", Unit: "ms", Decimals: 2, Lowest: true,
		Beside: []string{"generator_delay_p99", "generator_delay_max"},
		fields: []string{"response.p99_ms"},
		value:  func(s record.Sample) (float64, bool) { return s.Load.Response.P99MS, timed(s) },
	},
	{
		Key: "generator_delay_p99", Title: "Generator delay, 99th percentile", Unit: "ms", Decimals: 3, Lowest: true,
		fields: []string{"generator.lateness"},
		value: func(s record.Sample) (float64, bool) {
			return s.Load.Generator.Lateness.P99MS, s.Load.Generator.Lateness.Count > 0
		},
	},
	{
		Key: "generator_delay_max", Title: "Generator delay, maximum", Unit: "ms", Decimals: 3, Lowest: true,
		fields: []string{"generator.lateness"},
		value: func(s record.Sample) (float64, bool) {
			return s.Load.Generator.Lateness.MaxMS, s.Load.Generator.Lateness.Count > 0
		},
	},
	{
		Key: "achieved_rate", Title: "Achieved rate", Unit: "connections/s", Decimals: 0,
		Meaning: "requests started within the window, per second of it",
		value:   func(s record.Sample) (float64, bool) { return s.Load.IssuedRate, true },
	},
	{
		Key: "reply_rate", Title: "Replies", Name: "request rate", Unit: "1/s", Decimals: 0, published: study.RequestRate,
		value: func(s record.Sample) (float64, bool) { return s.Load.ReplyRate, true },
	},
	{
		Key: "loss", Title: "Request loss", Unit: "%", Decimals: 2, Lowest: true, published: study.Loss,
		value: func(s record.Sample) (float64, bool) {
			return 100 * float64(s.Load.Loss.Total()) / float64(max(1, s.Load.Scheduled)), true
		},
	},
	balancerCPU,
	{
		Key: "cpu_director", Title: "CPU of the director, its own account", Unit: "us/connection", Decimals: 1, Lowest: true,
		Meaning: "run time of its BPF programs or, of a proxy, of its processes; engines account for different parts of their work, " +
			"so it compares none of them",
		fields: []string{"connections"},
		value: func(s record.Sample) (float64, bool) {
			v, ok := perConnection(s.CPU.Director.Time, s.Load)
			return v, ok && s.CPU.Director.Known
		},
	},
	repliesPerCore,
	{
		Key: "cpu_servers", Title: "CPU of the real servers", Unit: "us/connection", Decimals: 1, Lowest: true,
		Meaning: "run time of their processes, network work done in their context included",
		fields:  []string{"connections"},
		value: func(s record.Sample) (float64, bool) {
			var sum time.Duration
			for _, t := range s.CPU.ServersNS {
				sum += t
			}
			v, ok := perConnection(sum, s.Load)
			return v, ok && len(s.CPU.ServersNS) > 0
		},
	},
	{
		Key: "cpu_machine", Title: "CPU of the whole machine", Unit: "% busy", Decimals: 0, Lowest: true,
		Meaning: "elapsed x CPUs - idle; the load generator is in it",
		value:   func(s record.Sample) (float64, bool) { return 100 * s.CPU.MachineBusy, true },
	},
}

// isBeside reports whether the metric is printed with a latency and has no
// table of its own.
func (m Metric) isBeside() bool {
	return slices.ContainsFunc(metrics, func(x Metric) bool { return slices.Contains(x.Beside, m.Key) })
}

// metric finds one by its key.
func metric(key string) Metric {
	for _, m := range metrics {
		if m.Key == key {
			return m
		}
	}
	panic("report: no metric " + key)
}
