// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"imbang/internal/lab/load"
)

// Parse reads what a tool printed in one run; name is for messages.
type Parse func(output io.Reader, name string) (*Output, error)

// Output is what a tool said. What it did not say is nil or not in the maps.
type Output struct {
	Seconds     float64 // of the run
	Connections *int64
	Replies     int64 // whole ones of any status, without those that failed
	// Status counts replies by class, such as 3xx. Keys other than 1xx to 5xx
	// say themselves what they count.
	Status map[string]int64
	Errors map[string]int64 // requests that failed, by the tool's names

	ResponseMS  *float64 // mean
	ResponseIs  string   // from when to when
	FirstByteMS *float64 // mean
	ConnectMS   *float64 // mean
	MaxMS       *float64
	LongestMS   *float64            // of a whole connection
	Percentiles map[float64]float64 // ms

	// KBs is 1024 bytes per second, of requests too with Both.
	KBs  *float64
	Both bool
}

// causes are the tools' names for what is lost, where they name a cause.
var causes = map[string]func(l *load.Loss) *int{
	"client-timo": func(l *load.Loss) *int { return &l.Timeout },
	"socket-timo": func(l *load.Loss) *int { return &l.Timeout },
	"timeout":     func(l *load.Loss) *int { return &l.Timeout },
	"connrefused": func(l *load.Loss) *int { return &l.Refused },
	"connreset":   func(l *load.Loss) *int { return &l.Reset },
	"fd-unavail":  func(l *load.Loss) *int { return &l.Client.Descriptors },
	"addrunavail": func(l *load.Loss) *int { return &l.Client.Addresses },
	"ftab-full":   func(l *load.Loss) *int { return &l.Client.Other },
}

// result is a tool's run as that of the lab's own generator.
func (t Tool) result(j *job, o *Output, r ran, began time.Time) *load.Result {
	out := &load.Result{Tool: t.Name, Caveats: j.notes, Began: began, Replies: int(o.Replies), PerServer: map[string]int{}}
	out.Describe(j.Plan)
	out.Clients = 1
	for name, n := range o.Errors {
		*causeOf(&out.Loss, name) += int(n)
	}
	t.status(out, o)
	t.times(out, o)
	t.rates(out, j, o)
	g := &out.Generator
	g.CPUSeconds, g.Requests, g.Connections = r.cpu.Seconds(), out.Issued, out.Connections
	if g.CPUSeconds > 0 {
		g.PerCPUSecond, g.RequestsPerCPUSecond = float64(g.Connections)/g.CPUSeconds, float64(g.Requests)/g.CPUSeconds
	}
	g.BusyShare = r.cpu.Seconds() / r.wall.Seconds()
	absent(out, "per_server", "unknown_server", "timeline", "service", "generator.lateness",
		"generator.wait_share", "generator.descriptor_limit", "generator.local_ports", "generator.max_open")
	slices.Sort(out.Absent)
	out.Judge()
	return out
}

func causeOf(l *load.Loss, name string) *int {
	if of, ok := causes[name]; ok {
		return of(l)
	}
	return &l.Unnamed
}

// status puts replies into classes; what the tool does not distinguish is a
// caveat, lest an error page pass for a page.
func (t Tool) status(out *load.Result, o *Output) {
	classes := map[string]*int{
		"1xx": &out.Status.Informational, "2xx": &out.Status.Success, "3xx": &out.Status.Redirect,
		"4xx": &out.Status.ClientError, "5xx": &out.Status.ServerError,
	}
	for _, key := range slices.Sorted(maps.Keys(o.Status)) {
		n := o.Status[key]
		if class, ok := classes[key]; ok {
			*class = int(n)
		} else if n > 0 {
			what := fmt.Sprint(n)
			if n == int64(out.Replies) { // of each run: one line in the report
				what = "all"
			}
			out.Caveats = append(out.Caveats, fmt.Sprintf("%s says of %s replies only that they are %s", t.Name, what, key))
		}
	}
	for key := range classes {
		if _, ok := o.Status[key]; !ok {
			absent(out, "status."+key)
		}
	}
}

func absent(out *load.Result, fields ...string) { out.Absent = append(out.Absent, fields...) }

// take is a value that the tool may not have given.
func take(out *load.Result, field string, v *float64) float64 {
	if v == nil {
		absent(out, field)
		return 0
	}
	return *v
}

func (t Tool) times(out *load.Result, o *Output) {
	r := &out.Response
	if r.MeanMS = take(out, "response.mean_ms", o.ResponseMS); o.ResponseMS != nil {
		r.Count = int64(out.Replies)
		out.Caveats = append(out.Caveats, fmt.Sprintf("%s's mean response time: %s", t.Name, o.ResponseIs))
	}
	for _, p := range []struct {
		of    float64
		to    *float64
		field string
	}{{50, &r.P50MS, "p50_ms"}, {90, &r.P90MS, "p90_ms"}, {99, &r.P99MS, "p99_ms"}, {99.9, &r.P999MS, "p999_ms"}} {
		ms, ok := o.Percentiles[p.of]
		if *p.to = ms; !ok {
			absent(out, "response."+p.field)
		}
	}
	r.MaxMS = take(out, "response.max_ms", o.MaxMS)
	absent(out, "response.hdr")
	out.FirstByte.MeanMS = take(out, "first_byte", o.FirstByteMS)
	out.Connect.MeanMS = take(out, "connect", o.ConnectMS)
}

// rates follow from the counts. What was asked for and got neither a reply nor
// an error is lost too: a connection of httperf's that fails is one error,
// however many requests it was to carry.
func (t Tool) rates(out *load.Result, j *job, o *Output) {
	out.Issued = out.Replies + out.Loss.Total() - out.Loss.Client.Total()
	out.Scheduled = out.Replies + out.Loss.Total()
	if asked := j.asked(); asked > out.Scheduled {
		out.Loss.Unnamed += asked - out.Scheduled
		out.Scheduled = asked
	}
	switch {
	case o.Connections != nil:
		out.Connections = int(*o.Connections)
	case j.perConn == 1:
		out.Connections = out.Issued
	default:
		absent(out, "connections")
	}
	out.DurationSeconds, out.WindowSeconds, out.ElapsedSeconds = o.Seconds, o.Seconds, o.Seconds
	absent(out, "bytes")
	if o.Seconds <= 0 {
		return
	}
	out.ReplyRate = float64(out.Replies) / o.Seconds
	out.OfferedRate, out.IssuedRate = j.Rate, float64(out.Issued)/j.issuing(out, o)
	if o.Both {
		absent(out, "throughput_kbs")
		out.NetIOKBs = take(out, "net_io_kbs", o.KBs)
	} else {
		absent(out, "net_io_kbs")
		out.ThroughputKBs = take(out, "throughput_kbs", o.KBs)
	}
}

// issuing is the shortest time in which the requests can have been sent. A run
// goes on until the last reply or timeout, so its sending ended as much earlier
// as a connection lasted at most, though not before its requests were due. A
// tool is late only if it is by this time: slow replies are no lateness.
func (j *job) issuing(out *load.Result, o *Output) float64 {
	if j.Rate == 0 {
		return o.Seconds
	}
	waited := 0.0
	if o.LongestMS != nil {
		waited = *o.LongestMS / 1000
	}
	if out.Loss.Timeout > 0 {
		waited = max(waited, j.Timeout.Seconds())
	}
	return min(o.Seconds, max(o.Seconds-waited, float64(j.asked())/j.Rate))
}

// asked is the number of requests, if the plan says.
func (j *job) asked() int {
	if j.Connections == 0 && j.Rate > 0 {
		return int(j.Rate*j.Duration.Seconds()) / j.perConn * j.perConn
	}
	return j.Connections
}
