// SPDX-License-Identifier: Apache-2.0

package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// Result is what a run measured, the warm-up left out. Every scheduled
// arrival is in exactly one of Replies, Loss and Unfinished.
type Result struct {
	// Tool is the program that made the load; empty is this package.
	Tool   string `json:"tool,omitempty"`
	Target string `json:"target"`
	// Targets is how many there were, Target being the first.
	Targets  int       `json:"targets,omitempty"`
	Loop     string    `json:"loop,omitempty"` // open, closed or trace
	Arrivals string    `json:"arrivals"`
	Seed     uint64    `json:"seed"`
	Clients  int       `json:"clients"`
	Began    time.Time `json:"began"`
	// Concurrency is the users of a closed loop.
	Concurrency           int `json:"concurrency,omitempty"`
	RequestsPerConnection int `json:"requests_per_connection,omitempty"` // -1 is no limit

	// Caveats say in words what the numbers do not mean.
	Caveats []string `json:"caveats,omitempty"`
	// Absent names fields, as they are called here, that the tool says
	// nothing of. They are 0 and mean nothing.
	Absent []string `json:"absent,omitempty"`

	// AskedRate is the plan's. OfferedRate is what the schedule came to: the
	// same for constant arrivals, near it for Poisson ones. IssuedRate is
	// what was started within the window; local failures are not in it, nor
	// what started after the window. All in requests per second; a closed loop
	// has only the last, and one of a number of requests divides it by
	// DurationSeconds. Of httperf, IssuedRate is the highest that its output
	// allows, since its time includes the wait for the last reply.
	AskedRate   float64 `json:"asked_rate"`
	OfferedRate float64 `json:"offered_rate"`
	IssuedRate  float64 `json:"issued_rate"`
	// ReplyRate is RepliesInWindow per second of WindowSeconds. Other tools
	// divide all replies by the time until the last one, so that one late
	// reply lowers their rate.
	ReplyRate float64 `json:"reply_rate"`
	// RepliesInWindow is complete replies that came within the window, those to
	// requests of the warm-up too. 0 for other tools.
	RepliesInWindow int `json:"replies_in_window,omitempty"`

	// All three begin with the counted window. WindowSeconds ends with the
	// schedule; in a closed loop of a number of requests, when the last one is
	// sent or, if that is no more than one for some user, with the last reply.
	// DurationSeconds, the makespan of such a number, ends with the last reply
	// (but not before the window), ElapsedSeconds with the last connection. Of
	// other tools all three are the time until the last reply.
	WindowSeconds   float64 `json:"window_seconds"`
	DurationSeconds float64 `json:"duration_seconds"`
	ElapsedSeconds  float64 `json:"elapsed_seconds"`

	Scheduled  int `json:"scheduled"`
	Issued     int `json:"issued"`
	Replies    int `json:"replies"`
	Unfinished int `json:"unfinished"` // open when the run was cancelled
	// Connections is those opened for the issued requests.
	Connections int `json:"connections"`
	// Repeated is requests sent once more because the server closed, without
	// a word of a reply, a connection that had carried others. They are
	// scheduled and issued once.
	Repeated int    `json:"repeated,omitempty"`
	Status   Status `json:"status"`
	Loss     Loss   `json:"loss"`

	Bytes Bytes `json:"bytes"`
	// ThroughputKBs is reply bytes, NetIOKBs reply and request bytes as
	// httperf's "Net I/O", that were received or sent within the window, per
	// second of WindowSeconds; of other tools, per second until the last
	// reply. 1 KB is 1024 bytes.
	ThroughputKBs float64 `json:"throughput_kbs"`
	NetIOKBs      float64 `json:"net_io_kbs"`

	// PerServer counts replies by the value of the plan's ServerHeader;
	// UnknownServer those without it.
	PerServer     map[string]int `json:"per_server"`
	UnknownServer int            `json:"unknown_server"`
	// Timeline is PerServer over time, if any server was told.
	Timeline *Timeline `json:"timeline,omitempty"`

	// Connect, FirstByte and Response run from the intended start to the
	// established connection, the first and the last byte of the reply.
	// Service runs from the actual start to the last byte: what a generator
	// that forgives itself its lateness would report. Connect counts every
	// connection established, the others complete replies of any status.
	Connect   Latency `json:"connect"`
	FirstByte Latency `json:"first_byte"`
	Response  Latency `json:"response"`
	Service   Latency `json:"service"`

	// Requests are counted separately when the plan gives them names.
	Requests []RequestResult `json:"requests,omitempty"`

	Generator Generator `json:"generator"`
}

// Status is replies by status class. Informational ones precede another
// reply on the same connection, 101 apart, which is counted as final too.
type Status struct {
	Informational int `json:"1xx"`
	Success       int `json:"2xx"`
	Redirect      int `json:"3xx"`
	ClientError   int `json:"4xx"`
	ServerError   int `json:"5xx"`
}

// Loss is arrivals without a complete reply, by cause.
type Loss struct {
	Client      ClientLoss `json:"client"`
	Refused     int        `json:"refused"`     // RST to the SYN, or ICMP port unreachable
	Reset       int        `json:"reset"`       // RST later
	Timeout     int        `json:"timeout"`     // Plan.Timeout passed
	Unreachable int        `json:"unreachable"` // other ICMP unreachable
	Truncated   int        `json:"truncated"`   // closed before the reply was complete
	Malformed   int        `json:"malformed"`   // not HTTP
	// Unnamed are those whose cause a tool does not tell.
	Unnamed int `json:"unnamed,omitempty"`
	// TimeoutConnecting is the part of Timeout without a handshake.
	TimeoutConnecting int `json:"timeout_connecting"`
}

// ClientLoss is what the generator's own machine failed to do.
type ClientLoss struct {
	Descriptors int `json:"descriptors"` // EMFILE, ENFILE (httperf: fd-unavail)
	Addresses   int `json:"addresses"`   // no free local port or no such source
	Other       int `json:"other"`       // memory, routes, local filters
	Unissued    int `json:"unissued"`    // never issued, even after Plan.Grace

	lastOther unix.Errno // one example of Other, for the reason
}

// Total is the arrivals lost by the client.
func (c ClientLoss) Total() int { return c.Descriptors + c.Addresses + c.Other + c.Unissued }

// Total is all arrivals lost.
func (l Loss) Total() int {
	return l.Client.Total() + l.Refused + l.Reset + l.Timeout + l.Unreachable + l.Truncated + l.Malformed + l.Unnamed
}

func (l *Loss) add(o Loss) {
	l.Client.Descriptors += o.Client.Descriptors
	l.Client.Addresses += o.Client.Addresses
	l.Client.Other += o.Client.Other
	l.Client.Unissued += o.Client.Unissued
	if o.Client.lastOther != 0 {
		l.Client.lastOther = o.Client.lastOther
	}
	l.Refused += o.Refused
	l.Reset += o.Reset
	l.Timeout += o.Timeout
	l.Unreachable += o.Unreachable
	l.Truncated += o.Truncated
	l.Malformed += o.Malformed
	l.TimeoutConnecting += o.TimeoutConnecting
}

// Bytes is the traffic above TCP. Framing is chunk sizes and trailers.
type Bytes struct {
	Sent    int64 `json:"sent"`
	Header  int64 `json:"header"`
	Content int64 `json:"content"`
	Framing int64 `json:"framing"`
}

// Received is every byte of replies.
func (b Bytes) Received() int64 { return b.Header + b.Content + b.Framing }

func (b *Bytes) add(o Bytes) {
	b.Sent += o.Sent
	b.Header += o.Header
	b.Content += o.Content
	b.Framing += o.Framing
}

// Generator is the account of the generator itself.
type Generator struct {
	// CPUSeconds is the client threads' user and system time, the warm-up
	// and the wait for the last replies included. Note that network work
	// done in the sender's context is in it: over veth or loopback that can
	// be the whole path to the server's socket.
	CPUSeconds float64 `json:"cpu_seconds"`
	// Connections is all connections opened with that time, and
	// PerCPUSecond their quotient.
	Connections  int     `json:"connections"`
	PerCPUSecond float64 `json:"per_cpu_second"`
	// Requests is all requests sent with it, and RequestsPerCPUSecond theirs.
	Requests             int     `json:"requests,omitempty"`
	RequestsPerCPUSecond float64 `json:"requests_per_cpu_second,omitempty"`
	// BusyShare is the share of the issuing time the busiest thread ran,
	// WaitShare the share it was ready but others had the CPU.
	BusyShare float64 `json:"busy_share"`
	WaitShare float64 `json:"wait_share"`

	// Precedence says that the clients came before others (Plan.Precedence).
	Precedence bool `json:"precedence,omitempty"`

	// Lateness is the delay of each start: actual minus intended time. Of the
	// built-in generator, response times contain it.
	Lateness        Latency `json:"lateness"`
	DescriptorLimit int     `json:"descriptor_limit"`
	LocalPorts      int     `json:"local_ports"` // all clients and sources; 0 unknown
	MaxOpen         int     `json:"max_open"`    // sum of the clients' peaks

	// Warnings are limits the plan could meet, whether or not it did.
	Warnings []string `json:"warnings,omitempty"`
	// Behind says that the generator did not keep its schedule, for Reason;
	// response times have no part in it (Judge).
	Behind bool   `json:"behind"`
	Reason string `json:"reason,omitempty"`
}

// result puts the clients' tallies together.
func (t *team) result(p Plan, began time.Time, limit, used int) (*Result, error) {
	sum, perServer, ports := t.sum()
	r := &Result{
		Began:     began,
		Scheduled: sum.scheduled, Issued: sum.issued, Replies: sum.replies, Unfinished: sum.unfinished,
		Connections: sum.opened, Repeated: sum.repeated, Status: statusOf(sum.status, sum.interim),
		Loss: sum.loss, Bytes: sum.bytes, PerServer: perServer, UnknownServer: sum.unnamed,
	}
	r.Describe(p)
	r.Generator = Generator{
		Connections: sum.all, Requests: sum.requests, DescriptorLimit: limit,
		Warnings: foresee(p, limit, used, ports),
	}
	for i, w := range t.workers {
		r.Generator.add(w, max(1, len(p.Clients[i].Sources)))
	}
	if r.Generator.CPUSeconds > 0 {
		r.Generator.PerCPUSecond = float64(sum.all) / r.Generator.CPUSeconds
		r.Generator.RequestsPerCPUSecond = float64(sum.requests) / r.Generator.CPUSeconds
	}
	t.rates(r, p, sum)
	r.Timeline = t.timeline(r.DurationSeconds)
	if err := r.latencies(sum); err != nil {
		return nil, err
	}
	if err := r.byName(sum, t.workers[0].menu.labels); err != nil {
		return nil, err
	}
	r.Judge()
	return r, nil
}

// The kinds of load, as in Result.Loop.
const (
	openLoop   = "open"
	closedLoop = "closed"
	traceLoop  = "trace"
)

// omission is the caveat of every closed loop.
const omission = "closed loop: response times leave out the requests that its users did not send while they waited " +
	"for a slow reply (coordinated omission), so they understate what arrivals of their own would have met; " +
	"compare rates of replies, and take response times from an open loop"

// Describe fills in what a result repeats of its plan, with the caveats that
// follow from it.
func (r *Result) Describe(p Plan) {
	p = p.withDefaults()
	r.Target, r.Targets = p.Target.String(), len(p.Targets)
	r.Arrivals, r.Seed = p.spec().String(), p.Seed
	r.Clients, r.Concurrency, r.RequestsPerConnection = len(p.Clients), p.Concurrency, p.RequestsPerConnection
	r.AskedRate = p.Rate
	switch {
	case p.Concurrency > 0:
		r.Loop, r.Caveats = closedLoop, append(r.Caveats, omission)
		r.Arrivals = ""
	case len(p.Trace) > 0:
		r.Loop, r.Arrivals = traceLoop, ""
	default:
		r.Loop = openLoop
	}
}

// byName sums the requests of each name.
func (r *Result) byName(sum *tally, labels []string) error {
	for i := range sum.named {
		one, err := sum.named[i].result(labels[i])
		if err != nil {
			return err
		}
		r.Requests = append(r.Requests, one)
	}
	return nil
}

// statusOf is replies by class, with interim ones.
func statusOf(n [5]int, interim int) Status {
	return Status{
		Informational: interim + n[0], Success: n[1], Redirect: n[2], ClientError: n[3], ServerError: n[4],
	}
}

// sum merges what the clients counted.
func (t *team) sum() (*tally, map[string]int, []int) {
	sum, perServer := newTally(), map[string]int{}
	sum.named = newNamed(t.workers[0].menu.labels)[:len(t.workers[0].tally.named)]
	var ports []int
	for _, w := range t.workers {
		sum.merge(w.tally)
		for i, n := range w.tally.server {
			if n > 0 {
				perServer[w.names.list[i]] += n
			}
		}
		ports = append(ports, w.ports)
	}
	return sum, perServer, ports
}

// rates fills in the three times and what is divided by them.
func (t *team) rates(r *Result, p Plan, sum *tally) {
	from, elapsed := int64(p.Warmup), int64(0)
	window := int64(0)
	for _, w := range t.workers {
		elapsed = max(elapsed, w.endNS-from)
		end, known := w.table.end()
		switch {
		case p.Concurrency > 0 && p.Connections > 0:
			var closed bool
			if end, closed = t.shared.window.known(); !closed {
				end = max(sum.lastReply, sum.lastIssue)
			}
		case !known: // cancelled
			end = w.endNS
		}
		window = max(window, end-from)
	}
	seconds := func(ns int64) float64 { return float64(max(ns, 0)) / 1e9 }
	r.WindowSeconds = seconds(window)
	r.DurationSeconds = seconds(max(window, sum.lastReply-from))
	r.ElapsedSeconds = seconds(elapsed)
	if window <= 0 {
		return
	}
	if p.Concurrency == 0 {
		r.OfferedRate = float64(r.Scheduled) / r.WindowSeconds
	}
	in := &sum.carried
	if r.IssuedRate = float64(r.Issued-in.afterwards) / r.WindowSeconds; p.Concurrency > 0 && p.Connections > 0 {
		r.IssuedRate = float64(r.Issued) / r.DurationSeconds
	}
	r.RepliesInWindow = in.replies
	r.ReplyRate = float64(in.replies) / r.WindowSeconds
	r.ThroughputKBs = float64(in.received) / 1024 / r.WindowSeconds
	r.NetIOKBs = float64(in.received+in.sent) / 1024 / r.WindowSeconds
}

// latencies summarizes the histograms.
func (r *Result) latencies(sum *tally) (err error) {
	if r.Connect, err = Summarize(sum.connect); err != nil {
		return err
	}
	if r.FirstByte, err = Summarize(sum.firstByte); err != nil {
		return err
	}
	if r.Response, err = Summarize(sum.response); err != nil {
		return err
	}
	if r.Service, err = Summarize(sum.service); err != nil {
		return err
	}
	r.Generator.Lateness, err = Summarize(sum.lateness)
	return err
}

// add counts one client's resources.
func (g *Generator) add(w *worker, sources int) {
	g.CPUSeconds += w.cpu.ran.Seconds()
	g.Precedence = w.precedence
	g.MaxOpen += w.slab.peak
	g.LocalPorts += w.ports * sources
	if w.issuingNS > 0 {
		g.BusyShare = max(g.BusyShare, float64(w.cpuIssuing.ran)/float64(w.issuingNS))
		g.WaitShare = max(g.WaitShare, float64(w.cpuIssuing.waited)/float64(w.issuingNS))
	}
}
