// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"math"
	"strings"
)

// parseAB reads a run of ab, of Apache 1.3 to 2.4.
//
// Of its two lines "Time per request" the first is concurrency x duration /
// requests, which is the mean response time while all clients are busy; the
// second, "across all concurrent requests", is duration / requests, which no
// reply took: it is the rate turned over.
func parseAB(b *block, r *Result) error {
	a := ab{r: r}
	r.Statuses, r.Errors = map[string]int64{}, map[string]int64{}
	r.ResponseIs = "concurrency x duration / requests, connecting included"
	if err := b.read(a.fields()); err != nil {
		return err
	}
	if a.host != "" {
		r.Target = a.host + ":" + a.port + a.path
	}
	a.finish()
	return nil
}

type ab struct {
	r                *Result
	host, port, path string
	failed           int64
	non2xx           int64
	rate             *float64 // as printed, in KB of 1000 or 1024 bytes
}

const (
	abVersion = `^This is ApacheBench, Version (\S+).*$`
	abRate    = `^Requests per second:\s+` + num + `(?:\s+\[#/sec\] \(mean\))?$`
)

func (a *ab) fields() []field {
	return append(a.summary(), a.times()...)
}

// summary is the upper half of ab's results.
func (a *ab) summary() []field {
	r := a.r
	text := func(label string, to *string) field {
		return field{label, pattern(`^` + label + `\s*(.*)$`), false, func(g groups) { *to = g[1] }}
	}
	return []field{
		{"This is ApacheBench, Version", pattern(abVersion), false, func(g groups) { r.Version = g[1] }},
		text("Server Hostname:", &a.host), text("Server Port:", &a.port), text("Document Path:", &a.path),
		{"Concurrency Level:", form("Concurrency Level: @"), true, func(g groups) { r.Asked.Concurrency = g.count(1) }},
		{"Time taken for tests:", form("Time taken for tests: # seconds"), true, func(g groups) { r.Seconds = g.value(1) }},
		{"Complete requests:", form("Complete requests: @"), true, func(g groups) { r.Replies = g.counted(1) }},
		{"Failed requests:", form("Failed requests: @"), true, func(g groups) { a.failed = g.counted(1) }},
		{"(Connect:", form("(Connect: @, Length: @, Exceptions: @)"), false, func(g groups) {
			a.causes(g, "connect", "length", "exceptions")
		}},
		{"(Connect:", form("(Connect: @, Receive: @, Length: @, Exceptions: @)"), false, func(g groups) {
			a.causes(g, "connect", "receive", "length", "exceptions")
		}},
		{"Broken pipe errors:", form("Broken pipe errors: @"), false, func(g groups) { r.Errors["write"] = g.counted(1) }},
		{"Write errors:", form("Write errors: @"), false, func(g groups) { r.Errors["write"] = g.counted(1) }},
		{"Non-2xx responses:", form("Non-2xx responses: @"), false, func(g groups) { a.non2xx = g.counted(1) }},
		{"Keep-Alive requests:", form("Keep-Alive requests: @"), false, func(g groups) { r.KeptAlive = g.count(1) }},
		{"Total transferred:", form("Total transferred: @ bytes"), true, func(g groups) { r.Received = g.float(1) }},
		// A run without a whole request has none of these.
		{"Requests per second:", pattern(abRate), false, func(g groups) { r.RequestRate = g.float(1) }},
		{"Transfer rate:", form("Transfer rate: # [Kbytes/sec] received"), false, func(g groups) { a.rate = g.float(1) }},
		{"Transfer rate:", form("Transfer rate: # kb/s received"), false, func(g groups) { a.rate = g.float(1) }},
	}
}

func (a *ab) causes(g groups, names ...string) {
	for i, name := range names {
		a.r.Errors[name] = g.counted(i + 1)
	}
}

// columns are times that run together: with -S long ones run into each
// other, and some versions print negative ones.
const columns = `^[A-Z][a-z]+:[-\s\d.]+$`

// times is the lower half.
func (a *ab) times() []field {
	r := a.r
	fields := []field{
		{"Time per request:", form("Time per request: # [ms] (mean)"), false, func(g groups) { r.ResponseMS = g.float(1) }},
		{"Time per request:", form("Time per request: # [ms] (mean, across all concurrent requests)"), false, func(g groups) {
			r.set(TimePerRequest, g.float(1))
		}},
		{"Total:", form("Total: # # # # #"), false, func(g groups) {
			r.set(TimeMin, g.float(1))
			r.set(TimeMedian, g.float(4))
			r.set(TimeMax, g.float(5))
		}},
		{"Total:", form("Total: # # #"), false, func(g groups) { // with -S
			r.set(TimeMin, g.float(1))
			r.set(TimeMax, g.float(3))
		}},
		{"Total:", pattern(columns), false, func(groups) {}},
	}
	for label, key := range map[string]string{"Connect:": TimeConnect, "Processing:": TimeProcessing, "Waiting:": TimeFirstAnswer} {
		mean := func(g groups) { r.set(key, g.float(2)) }
		fields = append(fields, field{label, form(label + " # # # # #"), false, mean}, field{label, form(label + " # # #"), false, mean},
			field{label, pattern(columns), false, func(groups) {}})
	}
	for _, p := range []int{50, 66, 75, 80, 90, 95, 98, 99} {
		label := fmt.Sprintf("%d%%", p)
		fields = append(fields, field{label, form(label + " @"), false, a.percentile(float64(p))})
	}
	return append(fields,
		field{"100%", form("100% @ (longest request)"), false, a.percentile(100)},
		field{"100%", form("100% @ (last request)"), false, a.percentile(100)})
}

func (a *ab) percentile(p float64) func(groups) {
	return func(g groups) {
		a.r.Percentiles = append(a.r.Percentiles, Percentile{p, g.value(1)})
	}
}

// finish derives what follows from several lines.
func (a *ab) finish() {
	r := a.r
	if r.Received != nil && *r.Received == 0 {
		r.Statuses = nil // ab takes a connection that is closed without a word for an empty reply
	} else if r.Replies >= a.non2xx {
		r.Statuses["2xx"], r.Statuses["non-2xx"] = r.Replies-a.non2xx, a.non2xx
	} else {
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("%d non-2xx responses of %d requests", a.non2xx, r.Replies))
	}
	var sum int64
	for name, n := range r.Errors {
		if name != "write" {
			sum += n
		}
	}
	switch {
	case sum == 0 && a.failed > 0: // a version that does not tell why
		r.Errors["failed"] = a.failed
	case sum != a.failed:
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("%d failed requests, but causes of %d", a.failed, sum))
	}
	r.checkRate("requests", r.Replies, r.RequestRate, 0.001, 0.01)
	a.throughput()
}

// throughput turns ab's transfer rate into KB of 1024 bytes. Apache 1.3's ab
// divided bytes by milliseconds, which are KB of 1000 bytes under the same
// label; the bytes it counted tell which it was.
func (a *ab) throughput() {
	r := a.r
	if a.rate == nil || r.Received == nil || r.Seconds <= 0 {
		return
	}
	of1024, of1000 := *r.Received/1024/r.Seconds, *r.Received/1000/r.Seconds
	slack := 0.02 + of1024*0.0006/r.Seconds // the duration has three decimals
	kb := *a.rate
	is1024, is1000 := math.Abs(kb-of1024) <= slack, math.Abs(kb-of1000) <= slack
	switch {
	case is1000 && (!is1024 || strings.HasPrefix(r.Version, "1.")):
		kb *= 1000. / 1024
	case !is1024:
		r.Contradictions = append(r.Contradictions, fmt.Sprintf("%.0f bytes in %g s make %.2f KB/s, not %g", *r.Received, r.Seconds, of1024, kb))
	}
	r.ThroughputKBs = &kb
}
