// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/load"
)

// able is what of a plan a tool can do.
type able struct {
	open, closed bool
	poisson      bool
	number, time bool // ends after a number of requests, after a time
	seconds      bool // times are whole seconds
	ipv6         bool
	some         bool // a number of requests on a connection, not only one or all
	sources      bool // binds to an address
	body         bool
	methods      []string
	fails        bool // exits with an error when requests fail
}

// job is a plan that a tool can do, with its one request.
type job struct {
	load.Plan
	request load.Request
	perConn int // requests a connection, or load.Unlimited
	notes   []string
}

// job checks a plan and completes it.
func (t Tool) job(p load.Plan) (*job, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Name, err)
	}
	j := &job{Plan: p, request: load.Request{Path: p.Path}, perConn: p.RequestsPerConnection}
	if len(p.Targets) > 0 {
		j.Target = p.Targets[0]
	}
	if len(p.Requests) > 0 {
		j.request = p.Requests[0]
	}
	if j.request.Method == "" {
		j.request.Method = "GET"
	}
	if j.request.Path == "" {
		j.request.Path = "/"
	}
	if j.perConn == 0 {
		j.perConn = 1
	}
	if len(j.Clients) == 0 {
		j.Clients = []load.Client{{}}
	}
	if j.Timeout == 0 {
		j.Timeout = 5 * time.Second
	}
	for _, refusal := range []string{t.refuseLoop(j), t.refuseRequest(j), t.refuseEnd(j)} {
		if refusal != "" {
			return nil, fmt.Errorf("%s cannot do %s", t.Name, refusal)
		}
	}
	t.note(j)
	return j, nil
}

// refuseLoop names what makes requests come in a way the tool has not.
func (t Tool) refuseLoop(j *job) string {
	a := &t.able
	switch {
	case len(j.Trace) > 0:
		return "traces: replay them with the built-in generator"
	case j.Concurrency > 0 && !a.closed:
		return "a closed loop: give a rate and no concurrency"
	case j.Concurrency == 0 && !a.open:
		return "rates: it is a closed loop, give a concurrency and no rate"
	case j.Arrivals == arrivals.Poisson && !a.poisson:
		return "poisson arrivals or pauses"
	case j.Shape != arrivals.Shape{}:
		return "arrivals of a shape (batches, on and off, ramps)"
	case j.Think > 0:
		return "think times"
	}
	return ""
}

// refuseRequest names what the tool cannot send.
func (t Tool) refuseRequest(j *job) string {
	a, r := &t.able, &j.request
	marked := func(s string) bool { return strings.Contains(r.Path+r.Body, s) }
	switch {
	case len(j.Requests) > 1:
		return fmt.Sprintf("%d kinds of requests: give one", len(j.Requests))
	case len(j.Targets) > 1:
		return fmt.Sprintf("%d targets: give one", len(j.Targets))
	case marked("{n}") || marked("{client}") || marked("{url}"):
		return "requests that differ: no {n}, {client} or {url}"
	case !slices.Contains(a.methods, r.Method):
		return fmt.Sprintf("method %s: want one of %s", r.Method, strings.Join(a.methods, ", "))
	case r.Body != "" && (!a.body || r.Method == "GET" || r.Method == "HEAD"):
		return fmt.Sprintf("a body of %s requests", r.Method)
	case j.Target.Addr().Unmap().Is6() && !a.ipv6:
		return "IPv6"
	}
	return ""
}

// refuseEnd names what ends the run or its connections as the tool cannot.
func (t Tool) refuseEnd(j *job) string {
	a := &t.able
	whole := func(d time.Duration) bool { return !a.seconds || d%time.Second == 0 }
	switch {
	case j.Connections > 0 && !a.number:
		return "a number of requests: give a duration"
	case j.Duration > 0 && !a.time:
		return "a duration: give a number of requests"
	case j.perConn > 1 && !a.some:
		return fmt.Sprintf("%d requests on a connection: it knows 1 and no limit", j.perConn)
	case j.perConn == load.Unlimited && a.some:
		return "connections without a limit of requests: give a number"
	case !whole(j.Duration):
		return fmt.Sprintf("a duration of %s: give whole seconds", j.Duration)
	case !whole(j.Warmup):
		return fmt.Sprintf("a warm-up of %s: give whole seconds", j.Warmup)
	case !whole(j.Timeout):
		return fmt.Sprintf("a timeout of %s: give whole seconds", j.Timeout)
	case j.Connections > 0 && j.Connections < j.Concurrency:
		return fmt.Sprintf("%d requests by %d users: give as many at least", j.Connections, j.Concurrency)
	case j.perConn > 1 && j.Connections%j.perConn != 0:
		return fmt.Sprintf("%d requests with %d on a connection: give a multiple", j.Connections, j.perConn)
	}
	return ""
}

// note says what is otherwise than planned and leaves the load what it was.
func (t Tool) note(j *job) {
	if n := len(j.Clients); n > 1 {
		j.notes = append(j.notes, fmt.Sprintf("%s ran in the first of %d client namespaces", t.Name, n))
	}
	if s := j.Clients[0].Sources; len(s) > 1 || (len(s) == 1 && !t.able.sources) {
		j.notes = append(j.notes, fmt.Sprintf("all connections came from one address: %s does not take %d", t.Name, len(s)))
	}
	if j.Warmup > 0 {
		j.notes = append(j.notes, "the warm-up was a run of its own, and ended before the one that counts")
	}
	if j.perConn > 1 {
		j.notes = append(j.notes, fmt.Sprintf("the %d requests of a connection follow each other's replies: only its first comes at the rate", j.perConn))
	}
}

// warmup is the job of the warm-up alone.
func (j *job) warmup() *job {
	w := *j
	if w.Connections > 0 && w.Rate > 0 { // in the tool's own terms
		w.Connections = max(w.perConn, int(w.Rate*w.Warmup.Seconds())/w.perConn*w.perConn)
		return &w
	}
	w.Connections, w.Duration = 0, w.Warmup
	return &w
}
