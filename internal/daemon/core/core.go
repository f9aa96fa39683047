// SPDX-License-Identifier: Apache-2.0

// Package core decides: from the configuration, the operator's orders and the results
// of checks follow the table that is wanted, what happened, and which commands to
// run. It is pure: time and input come in as arguments, and it touches nothing.
package core

import (
	"slices"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/weight"
	"imbang/internal/model"
)

// CheckID names one check of a server.
type CheckID struct {
	operator.ServerID
	Check string
}

// Core is the state of all services.
type Core struct {
	Config   *config.Config
	Book     operator.Book
	services []*service
	servers  map[operator.ServerID]*server
	// Begun is what followed from the beginning: what differs from the memory, and new services.
	Begun Outcome
}

type service struct {
	*config.Service
	servers []*server
	up      bool // has its quorum
	since   time.Time
}

type server struct {
	*config.Server
	id      operator.ServerID
	service *service
	checks  []*watched
	up      bool // all checks say so
	since   time.Time
}

// watched is one check with its state.
type watched struct {
	*config.Check
	check.State
}

// Memory is what a core knows that the next one can go on with.
type Memory struct {
	Checks map[CheckID]check.State
	Quorum map[operator.ServiceID]bool // whether a service had it; all others are new
}

// Hook is a command to run because of an event.
type Hook struct {
	Command []string
	Event   events.Event
}

// Down has the checks of servers that are down in the table say so, unless one of them
// does already. The table does not say it of all: while clients get the sorry server, or
// without a share of its weight, a server that is up is down there.
func (m Memory) Down(c *config.Config, down map[operator.ServerID]bool, now time.Time) {
	for s := range c.Pools() {
		if up, known := m.Quorum[s.ID()]; known && !up && s.Sorry != nil {
			continue
		}
		for _, one := range s.Servers {
			id := operator.ServerID{Service: s.ID(), Server: one.AddrPort()}
			known := slices.ContainsFunc(one.Checks, func(ch *config.Check) bool {
				state := m.Checks[CheckID{id, ch.Name}]
				return state.Verdict == check.Down || state.Withheld == model.Down
			})
			if !down[id] || known {
				continue
			}
			for _, ch := range one.Checks {
				m.Checks[CheckID{id, ch.Name}] = check.State{Verdict: check.Down, Since: now}
			}
		}
	}
}

// Up has the checks of servers that another checker has found up not say that they are down: they
// serve meanwhile, and go on until a check of now fails often enough.
func (m Memory) Up(c *config.Config, up map[operator.ServerID]bool, now time.Time) {
	for s := range c.Pools() {
		for _, one := range s.Servers {
			id := operator.ServerID{Service: s.ID(), Server: one.AddrPort()}
			if !up[id] {
				continue
			}
			for _, ch := range one.Checks {
				at := CheckID{id, ch.Name}
				state, known := m.Checks[at]
				if !known {
					state = ch.Begin(now)
				}
				if state.Verdict == check.Down {
					m.Checks[at] = check.State{Verdict: check.Up, Since: now}
				}
			}
		}
	}
}

// Outcome is what followed from an input.
type Outcome struct {
	Events []events.Event
	Hooks  []Hook
	// Changed are the services whose wanted table may have changed.
	Changed []operator.ServiceID
	// New are services that have their quorum from the beginning, and a command because of it.
	New []operator.ServiceID
}

func (o *Outcome) add(more Outcome) {
	o.Events = append(o.Events, more.Events...)
	o.Hooks = append(o.Hooks, more.Hooks...)
	o.Changed = append(o.Changed, more.Changed...)
	o.New = append(o.New, more.New...)
}

// New makes a core. Checks whose state is remembered go on from there.
func New(c *config.Config, book operator.Book, memory Memory, now time.Time) *Core {
	core := &Core{Config: c, Book: book, servers: map[operator.ServerID]*server{}}
	for one := range c.Pools() {
		s := &service{Service: one, since: now}
		for j := range s.Service.Servers {
			one := newServer(s, &s.Service.Servers[j], memory, now)
			s.servers = append(s.servers, one)
			core.servers[one.id] = one
		}
		core.services = append(core.services, s)
		if up, known := memory.Quorum[s.ID()]; known {
			s.up = up
			core.Begun.add(core.settle(s, now))
			continue
		}
		s.up = weight.Quorum(core.inputs(s), s.Quorum, 0, true) // hysteresis has nothing to keep
		if s.up && len(s.QuorumUp) > 0 {
			core.Begun.New = append(core.Begun.New, s.ID())
		}
	}
	return core
}

// Restart is New for a daemon that begins with another director than the last one had:
// only checks whose initial state is the last known one go on.
func Restart(c *config.Config, book operator.Book, memory Memory, now time.Time) *Core {
	known := Memory{Checks: map[CheckID]check.State{}}
	for s := range c.Pools() {
		for _, one := range s.Servers {
			for _, ch := range one.Checks {
				id := CheckID{operator.ServerID{Service: s.ID(), Server: one.AddrPort()}, ch.Name}
				if state, ok := memory.Checks[id]; ok && ch.LastKnown {
					known.Checks[id] = state
				}
			}
		}
	}
	return New(c, book, known, now)
}

func newServer(s *service, c *config.Server, memory Memory, now time.Time) *server {
	one := &server{Server: c, id: operator.ServerID{Service: s.ID(), Server: c.AddrPort()}, service: s, since: now}
	for _, ch := range c.Checks {
		w := &watched{Check: ch, State: ch.Begin(now)}
		if known, ok := memory.Checks[CheckID{one.id, ch.Name}]; ok {
			w.State = known
		}
		one.checks = append(one.checks, w)
	}
	one.up = one.healthy()
	if !one.up {
		for _, w := range one.checks {
			if w.Verdict == check.Down {
				one.since = w.Since
			}
		}
	}
	return one
}

// Memory is what is known of all checks and services.
func (c *Core) Memory() Memory {
	m := Memory{map[CheckID]check.State{}, map[operator.ServiceID]bool{}}
	for id, one := range c.servers {
		for _, w := range one.checks {
			m.Checks[CheckID{id, w.Name}] = w.State
		}
	}
	for _, s := range c.services {
		m.Quorum[s.ID()] = s.up
	}
	return m
}
