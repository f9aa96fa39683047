// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Arrivals says how the intended starts are spaced.
type Arrivals int

const (
	// Constant spaces arrivals by exactly 1/rate.
	Constant Arrivals = iota
	// Poisson draws independent exponential gaps of mean 1/rate: what many
	// independent users produce, and burstier than Constant.
	Poisson
)

// String is the name used in results and on command lines.
func (a Arrivals) String() string {
	switch a {
	case Constant:
		return "constant"
	case Poisson:
		return "poisson"
	}
	return fmt.Sprintf("arrivals(%d)", int(a))
}

// ParseArrivals is the inverse of String.
func ParseArrivals(s string) (Arrivals, error) {
	switch s {
	case "constant":
		return Constant, nil
	case "poisson":
		return Poisson, nil
	}
	return 0, fmt.Errorf("arrivals %q: want constant or poisson", s)
}

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

// Plan is one run. Rate, Target and one of Connections and Duration are
// required; the rest has the defaults stated.
type Plan struct {
	Target netip.AddrPort
	Host   string // Host header; Target by default
	Path   string // request target, "/" by default
	// ServerHeader names the reply header that identifies the real server,
	// for Result.PerServer; empty counts none.
	ServerHeader string

	Clients  []Client // one client in the caller's namespace by default
	Rate     float64  // connections per second, all clients together
	Arrivals Arrivals
	Seed     uint64 // of Poisson arrivals; equal seeds give equal schedules

	// Warmup comes first, at the same rate, and is not counted.
	Warmup time.Duration
	// Connections is how many counted arrivals are scheduled, all clients
	// together; or Duration is how long they are scheduled. Exactly one.
	Connections int
	Duration    time.Duration

	// Timeout ends a connection this long after its actual start (5 s by
	// default). It runs from the actual start so that a late generator does
	// not turn its own lateness into timeouts.
	Timeout time.Duration
	// Grace is how long past the window's end arrivals may still be issued
	// late (Timeout by default). What is unissued then is client loss.
	Grace time.Duration
	// Closing and Linger govern the end of a connection; Linger (1 s by
	// default) is the wait for the server's FIN after a complete reply.
	Closing Closing
	Linger  time.Duration

	// stall, when set by a test, is called before each issue.
	stall func(issued int)
}

// withDefaults is p with every optional field filled in.
func (p Plan) withDefaults() Plan {
	if p.Host == "" && p.Target.IsValid() {
		p.Host = p.Target.String()
	}
	if p.Path == "" {
		p.Path = "/"
	}
	if len(p.Clients) == 0 {
		p.Clients = []Client{{}}
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
	return p
}

// validate reports the first field that cannot be run, and its remedy.
func (p Plan) validate() error {
	switch {
	case !p.Target.IsValid() || p.Target.Port() == 0:
		return fmt.Errorf("target %s: want an address and a port", p.Target)
	case p.Target.Addr().Zone() != "":
		return fmt.Errorf("target %s: zones are not supported, use a global address", p.Target)
	case !(p.Rate > 0 && p.Rate <= 1e7):
		return fmt.Errorf("rate %g: want above 0 and at most 1e7 connections per second", p.Rate)
	case p.Arrivals != Constant && p.Arrivals != Poisson:
		return fmt.Errorf("%s: want constant or poisson", p.Arrivals)
	case p.Closing != ServerFirst && p.Closing != ClientFirst:
		return fmt.Errorf("closing %d: want ServerFirst or ClientFirst", p.Closing)
	case (p.Connections > 0) == (p.Duration > 0) || p.Connections < 0 || p.Duration < 0:
		return errors.New("give one of connections and duration, above 0")
	case p.Warmup < 0 || p.Timeout < 0 || p.Grace < 0 || p.Linger < 0:
		return errors.New("warmup, timeout, grace and linger cannot be negative")
	}
	if err := p.validateText(); err != nil {
		return err
	}
	for i, c := range p.Clients {
		for _, s := range c.Sources {
			if !s.IsValid() || s.Zone() != "" || s.Unmap().Is4() != p.Target.Addr().Unmap().Is4() {
				return fmt.Errorf("client %d: source %s: want the family of target %s, without a zone", i, s, p.Target)
			}
		}
	}
	return nil
}

// validateText guards the request head: nothing given may end a line or a
// word of it.
func (p Plan) validateText() error {
	for _, f := range []struct{ name, text string }{
		{"host", p.Host}, {"path", p.Path}, {"server header", p.ServerHeader},
	} {
		if strings.ContainsFunc(f.text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return fmt.Errorf("%s %q: no spaces or control characters", f.name, f.text)
		}
	}
	if p.Path[0] != '/' {
		return fmt.Errorf("path %q: want it to begin with /", p.Path)
	}
	if strings.Contains(p.ServerHeader, ":") {
		return fmt.Errorf("server header %q: the name only, without the colon", p.ServerHeader)
	}
	return nil
}

// request is the head sent on every connection.
func (p Plan) request() []byte {
	return []byte("GET " + p.Path + " HTTP/1.1\r\nHost: " + p.Host +
		"\r\nUser-Agent: imbang\r\nConnection: close\r\n\r\n")
}
