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
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/lab/topology"
)

// Engine is one way to balance load.
type Engine interface {
	// Name is what studies and tables call it.
	Name() string
	// Balances reports whether schedulers mean anything to it; if not, it
	// is measured once for each rate, with an empty scheduler.
	Balances() bool
	// Start sets up a fresh director. On an error nothing is left.
	Start(ctx context.Context, setup Setup) (Instance, error)
}

// Setup is what an engine balances.
type Setup struct {
	Cluster   *topology.Cluster
	Scheduler string // by Linux's name; empty for one that does not balance
	Weights   []int  // of the cluster's servers, in order
}

// Instance is a running director.
type Instance interface {
	// Target is where clients send their requests.
	Target() netip.AddrPort
	// CPU is the director's CPU time since it started.
	CPU(ctx context.Context) (CPU, error)
	// Stop takes the director down. It is called with a context that
	// outlives the measurement's, so that Ctrl-C takes it down too.
	Stop(ctx context.Context) error
}

// CPU is what a director has used. Known is false where no figure exists: the
// kernel's own forwarding is charged to whoever is interrupted.
type CPU struct {
	Known bool          `json:"known"`
	Time  time.Duration `json:"time_ns"`
	Runs  uint64        `json:"runs,omitempty"` // of BPF programs, about one a packet
}

// Sub is the growth since an earlier reading.
func (c CPU) Sub(before CPU) CPU {
	return CPU{Known: c.Known && before.Known, Time: c.Time - before.Time, Runs: c.Runs - before.Runs}
}

// factories makes every engine there is.
var factories = map[string]func(executable string) Engine{
	"imbang": func(executable string) Engine { return &imbang{executable} },
	"direct": func(string) Engine { return direct{} },
}

// order is how engines are listed to people: balancers first.
var order = []string{"imbang", "direct"}

// Names lists the engines.
func Names() []string { return slices.Clone(order) }

// New makes the engine of a name that Names holds; executable is this program.
func New(name, executable string) (Engine, bool) {
	f, ok := factories[strings.ToLower(name)]
	if !ok {
		return nil, false
	}
	return f(executable), true
}
