// SPDX-License-Identifier: Apache-2.0

// Package engine is the one interface through which the lab measures any
// director: one file an engine.
//
// An engine sets up the director's namespace of a built cluster for one
// scheduler, says where clients reach it and what CPU time it has used, and
// takes everything down again. It uses other programs as their users do, by
// their commands. It must not import the load generator or the reports.
package engine

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// Engine is one way to balance load.
type Engine interface {
	// Name is what studies and tables call it.
	Name() string
	// Balances reports whether schedulers mean anything to it; if not, it
	// has one cell in each condition, with an empty scheduler.
	Balances() bool
	// Schedulers are those it has, by its own names; nil when only Start
	// can tell.
	Schedulers() []string
	// Version is the version of its program, empty for this one; an error
	// says what is missing and how to get it.
	Version(ctx context.Context) (string, error)
	// Configuration is the text that Start hands to the engine's program:
	// its configuration file, or the commands and their input.
	Configuration(setup Setup) (string, error)
	// Start sets up a fresh director. On an error nothing is left.
	Start(ctx context.Context, setup Setup) (Instance, error)
}

// Setup is what an engine balances.
type Setup struct {
	Cluster   *topology.Cluster
	Family    topology.Family
	Servers   []topology.Server // those of the cluster that take part
	Weights   []int             // of Servers, in order
	Scheduler string            // by the engine's own name; empty for one that does not balance
	Dir       string            // for the engine's files; it is removed with the run
	TLS       bool              // the engine also ends TLS, at port 443 (see certificate)
	UDP       bool              // the service is of UDP, which only balancers in the kernel have
	Attach    []string          // further arguments of `imbang attach`
}

// targets are where clients reach a director: one for each virtual address.
type targets []netip.AddrPort

// Targets is the part of an Instance that lists them.
func (t targets) Targets() []netip.AddrPort { return t }

// targets are those of the virtual service.
func (s Setup) targets() (list targets) {
	for _, a := range s.Cluster.Virtuals(s.Family) {
		list = append(list, netip.AddrPortFrom(a, server.Port))
	}
	return list
}

// protocol is the service's.
func (s Setup) protocol() string {
	if s.UDP {
		return "udp"
	}
	return "tcp"
}

// listen is where a program of user space accepts connections: at the virtual
// address, or at all addresses of the family.
func (s Setup) listen() netip.AddrPort {
	list := s.targets()
	switch {
	case len(list) == 1:
		return list[0]
	case list[0].Addr().Is6():
		return netip.AddrPortFrom(netip.IPv6Unspecified(), server.Port)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), server.Port)
}

// backends are the addresses of the real servers that take part.
func (s Setup) backends() (list []netip.AddrPort) {
	for _, srv := range s.Servers {
		list = append(list, netip.AddrPortFrom(srv.Addr[s.Family], server.Port))
	}
	return list
}

// Instance is a running director.
type Instance interface {
	// Targets are where clients send their requests, one for each virtual
	// address.
	Targets() []netip.AddrPort
	// CPU is the director's CPU time since it started.
	CPU(ctx context.Context) (CPU, error)
	// Stop takes the director down. It is called with a context that
	// outlives the measurement's, so that Ctrl-C takes it down too.
	Stop(ctx context.Context) error
}

// CPU is what a director has used. Known is false where no figure exists: the
// kernel's own forwarding is charged to the interrupted process.
type CPU struct {
	Known bool          `json:"known"`
	Time  time.Duration `json:"time_ns"`
	Runs  uint64        `json:"runs,omitempty"` // of BPF programs, about one a packet
}

// Sub is the growth since an earlier reading.
func (c CPU) Sub(before CPU) CPU {
	return CPU{Known: c.Known && before.Known, Time: c.Time - before.Time, Runs: c.Runs - before.Runs}
}

// ErrUnavailable marks an engine that this kernel does not have. A run goes on
// without it and says so; a program that is merely not installed is an error.
var ErrUnavailable = errors.New("not available")

// factories makes every engine there is.
var factories = map[string]func(executable string) Engine{
	"imbang":             func(executable string) Engine { return &imbang{executable} },
	"imbang-l7":          func(executable string) Engine { return &imbangL7{executable} },
	"ipvs":               func(string) Engine { return ipvs{} },
	"nftables":           func(string) Engine { return nftables{} },
	"nftables-flowtable": func(string) Engine { return nftables{flowtable: true} },
	"haproxy-tcp":        func(string) Engine { return haproxy("tcp") },
	"haproxy-http":       func(string) Engine { return haproxy("http") },
	"nginx-stream":       func(string) Engine { return nginx("stream") },
	"nginx-http":         func(string) Engine { return nginx("http") },
	"direct":             func(string) Engine { return direct{} },
}

// order is how engines are listed to people: balancers first.
var order = []string{"imbang", "ipvs", "nftables", "nftables-flowtable", "haproxy-tcp", "haproxy-http", "imbang-l7", "nginx-stream", "nginx-http", "direct"}

// names are the sorted keys.
func names(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Names lists the engines.
func Names() []string { return slices.Clone(order) }

// Described lists the engines as studies know them.
func Described() (list []study.Engine) {
	for _, name := range order {
		e := factories[name]("")
		list = append(list, study.Engine{Name: name, Balances: e.Balances(), Schedulers: e.Schedulers()})
	}
	return list
}

// New makes the engine of a name that Names holds; imbang is the path of its program.
func New(name, executable string) (Engine, bool) {
	f, ok := factories[strings.ToLower(name)]
	if !ok {
		return nil, false
	}
	return f(executable), true
}
