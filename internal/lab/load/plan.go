// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net/netip"
	"time"

	"imbang/internal/lab/arrivals"
)

// Closing says which end closes a connection after a complete reply.
type Closing int

const (
	// ServerFirst waits for the server's FIN, then closes: TIME_WAIT stays
	// with the server and the client's port is free at once. A server that
	// does not close within Plan.Linger is closed on.
	ServerFirst Closing = iota
	// ClientFirst closes as soon as the declared length has arrived, as
	// httperf does. TIME_WAIT mostly stays with the client: at thousands of
	// connections a second one source address lasts a few seconds.
	ClientFirst
)

// Client is one source of load: a thread in a network namespace.
type Client struct {
	// Namespace is a path such as /run/netns/c1; empty is the caller's.
	Namespace string
	// Sources are the addresses connections come from, in turn. Empty leaves
	// the choice to the kernel, which also saves two system calls.
	Sources []netip.Addr
}

// Plan is one run: an open loop with Rate, a closed one with Concurrency, or
// the replay of a Trace. A target and one of Connections and Duration are
// required (a trace needs neither of these two); the rest has the defaults
// stated.
type Plan struct {
	Target netip.AddrPort
	// Targets, when given, take Target's place: each request goes to one of
	// them, chosen by Zipf's law in their order with this exponent (0: all
	// alike).
	Targets         []netip.AddrPort
	TargetsExponent float64

	Host string // Host header; the target by default
	Path string // request target, "/" by default; a pattern as in Request
	// ServerHeader names the reply header that identifies the real server,
	// for Result.PerServer; empty counts none.
	ServerHeader string
	// Requests, when given, take Path's place: each one sent is chosen by
	// weight, and Result.Requests has figures for each.
	Requests []Request
	// URLs is how many different {url} there are, URLsExponent that of Zipf's
	// law, by which they are chosen, 1 the most often.
	URLs         int
	URLsExponent float64

	Clients []Client // one client in the caller's namespace by default
	// Rate is requests per second, all clients together, in an open loop.
	Rate     float64
	Arrivals arrivals.Distribution
	Shape    arrivals.Shape
	Seed     uint64 // random seed; equal seeds give equal schedules and choices
	// Concurrency users make a closed loop: each sends its next request as
	// soon as the last has ended and Think has passed: exactly that, or with
	// Poisson arrivals exponential pauses of that mean.
	Concurrency int
	Think       time.Duration
	// Trace is replayed, in an open loop.
	Trace []Event

	// RequestsPerConnection is how many requests a connection carries before
	// the client ends it: 1 by default, Unlimited for as many as there are.
	RequestsPerConnection int

	// Warmup comes first, with the same load, and is not counted.
	Warmup time.Duration
	// Connections is how many counted requests are sent, all clients
	// together (each on a connection of its own by default); or Duration is
	// how long they are. Exactly one; Duration, if given, cuts a trace short.
	Connections int
	Duration    time.Duration

	// Timeout ends a request and its connection this long after its actual
	// start (5 s by default). It runs from the actual start so that a late
	// generator does not turn its own lateness into timeouts.
	Timeout time.Duration
	// Grace is how long past the window's end arrivals may still be issued
	// late (Timeout by default). What is unissued then is client loss.
	Grace time.Duration
	// Closing and Linger govern the end of a connection; Linger (1 s by
	// default) is the wait for the server's FIN after a complete reply.
	Closing Closing
	Linger  time.Duration

	// Precedence gives the clients a CPU before all other processes of the machine,
	// as clients with machines of their own have: what is short is then the
	// cluster, not the generator.
	Precedence bool

	// stall, when set by a test, is called before each issue.
	stall func(issued int)
	// named is whether Requests were given.
	named bool
}

// Unlimited is as many requests on a connection as there are.
const Unlimited = -1

// withDefaults is p with every optional field filled in.
func (p Plan) withDefaults() Plan {
	if len(p.Targets) == 0 {
		p.Targets = []netip.AddrPort{p.Target}
	}
	p.Target = p.Targets[0]
	if p.Path == "" {
		p.Path = "/"
	}
	p.named = len(p.Requests) > 0
	if !p.named {
		p.Requests = []Request{{Path: p.Path}}
	}
	p.Requests = requestDefaults(p.Requests)
	if len(p.Clients) == 0 {
		p.Clients = []Client{{}}
	}
	if p.RequestsPerConnection == 0 {
		p.RequestsPerConnection = 1
	}
	if p.Timeout == 0 {
		p.Timeout = 5 * time.Second
	}
	if p.Grace == 0 {
		p.Grace = p.Timeout
	}
	if p.Linger == 0 {
		p.Linger = time.Second
	}
	if p.Rate == 0 && len(p.Trace) > 0 {
		p.Rate = p.traceRate()
	}
	return p
}

// keeps reports whether a connection stays open after one that has carried
// so many requests carries another.
func (p *Plan) keeps(carried int32) bool {
	return p.RequestsPerConnection == Unlimited || int(carried)+1 < p.RequestsPerConnection
}
