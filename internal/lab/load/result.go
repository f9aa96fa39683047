// SPDX-License-Identifier: Apache-2.0

package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// Result is what a run measured, the warm-up left out. Every scheduled
// arrival is in exactly one of Replies, Loss and Unfinished.
type Result struct {
	Target   string    `json:"target"`
	Arrivals string    `json:"arrivals"`
	Seed     uint64    `json:"seed"`
	Clients  int       `json:"clients"`
	Began    time.Time `json:"began"`

	// AskedRate is the plan's. OfferedRate is what the schedule came to: the
	// same for constant arrivals, near it for Poisson ones. IssuedRate is
	// what was really started, late ones and all; local failures are not in
	// it. All in connections per second.
	AskedRate   float64 `json:"asked_rate"`
	OfferedRate float64 `json:"offered_rate"`
	IssuedRate  float64 `json:"issued_rate"`
	// ReplyRate is complete replies per second of DurationSeconds.
	ReplyRate float64 `json:"reply_rate"`

	// All three begin with the counted window. WindowSeconds ends with the
	// schedule, DurationSeconds with the last reply (but not before the
	// window), ElapsedSeconds with the last connection.
	WindowSeconds   float64 `json:"window_seconds"`
	DurationSeconds float64 `json:"duration_seconds"`
	ElapsedSeconds  float64 `json:"elapsed_seconds"`

	Scheduled  int    `json:"scheduled"`
	Issued     int    `json:"issued"`
	Replies    int    `json:"replies"`
	Unfinished int    `json:"unfinished"` // open when the run was cancelled
	Status     Status `json:"status"`
	Loss       Loss   `json:"loss"`

	Bytes Bytes `json:"bytes"`
	// ThroughputKBs is reply bytes, NetIOKBs reply and request bytes as
	// httperf's "Net I/O", per second of DurationSeconds. 1 KB is 1024 bytes.
	ThroughputKBs float64 `json:"throughput_kbs"`
	NetIOKBs      float64 `json:"net_io_kbs"`

	// PerServer counts replies by the value of the plan's ServerHeader;
	// UnknownServer those without it.
	PerServer     map[string]int `json:"per_server"`
	UnknownServer int            `json:"unknown_server"`

	// Connect, FirstByte and Response run from the intended start to the
	// established connection, the first and the last byte of the reply.
	// Service runs from the actual start to the last byte: what a generator
	// that forgives itself its lateness would report. Connect counts every
	// connection established, the others complete replies of any status.
	Connect   Latency `json:"connect"`
	FirstByte Latency `json:"first_byte"`
	Response  Latency `json:"response"`
	Service   Latency `json:"service"`

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
	return l.Client.Total() + l.Refused + l.Reset + l.Timeout + l.Unreachable + l.Truncated + l.Malformed
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
	// BusyShare is the share of the issuing time the busiest thread ran,
	// WaitShare the share it was ready but others had the CPU.
	BusyShare float64 `json:"busy_share"`
	WaitShare float64 `json:"wait_share"`

	Lateness        Latency `json:"lateness"` // actual minus intended start
	DescriptorLimit int     `json:"descriptor_limit"`
	LocalPorts      int     `json:"local_ports"` // all clients and sources; 0 unknown
	MaxOpen         int     `json:"max_open"`    // sum of the clients' peaks

	// Warnings are limits the plan could meet, whether or not it did.
	Warnings []string `json:"warnings,omitempty"`
	// Behind says that the schedule was not kept: the generator, not the
	// cluster, was the bottleneck, for Reason.
	Behind bool   `json:"behind"`
	Reason string `json:"reason,omitempty"`
}

// result puts the clients' tallies together.
func (t *team) result(p Plan, began time.Time, limit, used int) (*Result, error) {
	sum, perServer, ports := t.sum()
	r := &Result{
		Target: p.Target.String(), Arrivals: p.Arrivals.String(), Seed: p.Seed, Clients: len(p.Clients),
		Began: began, AskedRate: p.Rate,
		Scheduled: sum.scheduled, Issued: sum.issued, Replies: sum.replies, Unfinished: sum.unfinished,
		Status: Status{
			Informational: sum.interim + sum.status[0], Success: sum.status[1], Redirect: sum.status[2],
			ClientError: sum.status[3], ServerError: sum.status[4],
		},
		Loss: sum.loss, Bytes: sum.bytes, PerServer: perServer, UnknownServer: sum.unnamed,
	}
	r.Generator = Generator{
		Connections: sum.all, DescriptorLimit: limit, Warnings: foresee(p, limit, used, ports),
	}
	for i, w := range t.workers {
		r.Generator.add(w, max(1, len(p.Clients[i].Sources)))
	}
	if r.Generator.CPUSeconds > 0 {
		r.Generator.PerCPUSecond = float64(sum.all) / r.Generator.CPUSeconds
	}
	t.rates(r, p, sum)
	if err := r.latencies(sum); err != nil {
		return nil, err
	}
	r.judge()
	return r, nil
}

// sum merges what the clients counted.
func (t *team) sum() (*tally, map[string]int, []int) {
	sum, perServer := newTally(), map[string]int{}
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
		end := w.deal.end
		if !w.deal.over { // cancelled
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
	r.OfferedRate = float64(r.Scheduled) / r.WindowSeconds
	r.IssuedRate = float64(r.Issued) / seconds(max(window, sum.lastIssue-from))
	r.ReplyRate = float64(r.Replies) / r.DurationSeconds
	r.ThroughputKBs = float64(r.Bytes.Received()) / 1024 / r.DurationSeconds
	r.NetIOKBs = float64(r.Bytes.Received()+r.Bytes.Sent) / 1024 / r.DurationSeconds
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
	g.MaxOpen += w.slab.peak
	g.LocalPorts += w.ports * sources
	if w.issuingNS > 0 {
		g.BusyShare = max(g.BusyShare, float64(w.cpuIssuing.ran)/float64(w.issuingNS))
		g.WaitShare = max(g.WaitShare, float64(w.cpuIssuing.waited)/float64(w.issuingNS))
	}
}
