// SPDX-License-Identifier: Apache-2.0

// Package core decides: from the configuration, the operator's orders and the results
// of checks follow the table that is wanted, what happened, and which commands to
// run. It is pure: time and input come in as arguments, and it touches nothing.
package core

import (
	"fmt"
	"slices"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
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
}

type service struct {
	*config.Service
	servers []*server
	up      bool // has its quorum
	since   time.Time
	last    int // index of the server that went down last; -1: none did
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
	command check.Command // the last one that asked for something
}

// Memory is what a core knows that the next one can go on with.
type Memory map[CheckID]check.State

// Outcome is what followed from an input.
type Outcome struct {
	Events []Event
	Hooks  []Hook
	// Changed are the services whose wanted table may have changed.
	Changed []model.ServiceKey
}

func (o *Outcome) add(more Outcome) {
	o.Events = append(o.Events, more.Events...)
	o.Hooks = append(o.Hooks, more.Hooks...)
	o.Changed = append(o.Changed, more.Changed...)
}

// New makes a core. Checks whose state is remembered go on from there.
func New(c *config.Config, book operator.Book, memory Memory, now time.Time) *Core {
	core := &Core{Config: c, Book: book, servers: map[operator.ServerID]*server{}}
	for i := range c.Services {
		s := &service{Service: &c.Services[i], last: -1, since: now}
		for j := range s.Service.Servers {
			one := newServer(s, &s.Service.Servers[j], memory, now)
			s.servers = append(s.servers, one)
			core.servers[one.id] = one
		}
		s.up = weight.Quorum(core.inputs(s), s.Quorum, 0, true)
		core.services = append(core.services, s)
	}
	return core
}

func newServer(s *service, c *config.Server, memory Memory, now time.Time) *server {
	one := &server{Server: c, id: operator.ServerID{Service: s.Key, Server: c.AddrPort()}, service: s, since: now}
	for _, ch := range c.Checks {
		w := &watched{Check: ch, State: ch.Begin(now)}
		if known, ok := memory[CheckID{one.id, ch.Name}]; ok && (ch.LastKnown || !known.At.IsZero()) {
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

// Memory is what is known of all checks.
func (c *Core) Memory() Memory {
	m := Memory{}
	for id, one := range c.servers {
		for _, w := range one.checks {
			m[CheckID{id, w.Name}] = w.State
		}
	}
	return m
}

// Reload is a core for another configuration, which knows what this one knows.
func (c *Core) Reload(next *config.Config, now time.Time) *Core {
	n := New(next, c.Book, c.Memory(), now)
	for _, s := range n.services {
		if i := slices.IndexFunc(c.services, func(o *service) bool { return o.Key == s.Key }); i >= 0 {
			s.up, s.since = c.services[i].up, c.services[i].since
			s.up = weight.Quorum(n.inputs(s), s.Quorum, s.Hysteresis, s.up)
		}
		for _, one := range s.servers {
			if old := c.servers[one.id]; old != nil && old.up == one.up {
				one.since = old.since
			}
		}
	}
	return n
}

// healthy reports whether no check says that the server is down.
func (s *server) healthy() bool {
	return !slices.ContainsFunc(s.checks, func(w *watched) bool { return w.Verdict == check.Down })
}

// Result takes a check's result in. One of a check that is no more, or of a server in
// maintenance, means nothing.
func (c *Core) Result(id CheckID, r check.Result, now time.Time) (out Outcome) {
	one := c.servers[id.ServerID]
	if one == nil {
		return out
	}
	i := slices.IndexFunc(one.checks, func(w *watched) bool { return w.Name == id.Check })
	if i < 0 || c.Book[id.ServerID].Maintenance != nil {
		return out
	}
	w := one.checks[i]
	share, command := w.share(), w.command
	w.State, _ = w.Next(w.State, r, now)
	w.heed(r.Command)
	if w.share() != share || w.command != command {
		out.Changed = []model.ServiceKey{one.id.Service}
		if w.command != command {
			out.Events = append(out.Events, c.event(now, AgentAsked, one, "agent asks for "+commandWord(w.command)))
		}
	}
	if up := one.healthy(); up != one.up {
		one.up, one.since = up, now
		out.add(c.serverChanged(one, w, now))
	}
	out.add(c.settle(one.service, now))
	return out
}

func commandWord(c check.Command) string {
	if c == check.NoCommand {
		return check.Ready.String()
	}
	return c.String()
}

// share is the percentage of the weight that a check leaves.
func (w *watched) share() uint8 {
	if w.Last.HasShare {
		return w.Last.Share
	}
	return 100
}

// heed remembers what an agent asks for, until it says ready.
func (w *watched) heed(c check.Command) {
	switch c {
	case check.Ready:
		w.command = check.NoCommand
	case check.Drain, check.Maintenance:
		w.command = c
	}
}

// serverChanged tells that a server came up or went down.
func (c *Core) serverChanged(one *server, because *watched, now time.Time) (out Outcome) {
	out.Changed = []model.ServiceKey{one.id.Service}
	kind, command := ServerUp, one.NotifyUp
	if !one.up {
		kind, command = ServerDown, one.NotifyDown
		one.service.last = slices.Index(one.service.servers, one)
	}
	e := c.event(now, kind, one, fmt.Sprintf("check %s: %s", because.Name, because.Last.Detail))
	out.Events = append(out.Events, e)
	if len(command) > 0 {
		out.Hooks = append(out.Hooks, Hook{command, e})
	}
	return out
}

// settle follows a service's quorum.
func (c *Core) settle(s *service, now time.Time) (out Outcome) {
	up := weight.Quorum(c.inputs(s), s.Quorum, s.Hysteresis, s.up)
	if up == s.up {
		return out
	}
	s.up, s.since = up, now
	out.Changed = []model.ServiceKey{s.Key}
	kind, command, text := QuorumUp, s.QuorumUp, "the service has its quorum of "
	if !up {
		kind, command, text = QuorumDown, s.QuorumDown, "the service has less than its quorum of "
	}
	e := Event{Time: now, Kind: kind, Service: s.Name, Text: fmt.Sprintf("%s%d", text, s.Quorum)}
	if !up && s.Sorry != nil {
		e.Text += ", clients get the sorry server " + s.Sorry.Name
	}
	out.Events = append(out.Events, e)
	if len(command) > 0 {
		out.Hooks = append(out.Hooks, Hook{command, e})
	}
	return out
}

// input is what is known of a server.
func (c *Core) input(one *server) weight.Input {
	order := c.Book[one.id]
	in := weight.Input{
		Configured: one.Weight, Down: !one.up, Share: 100, Remove: one.service.OnFailure == config.Remove,
		Drain: order.Drain != nil, Maintenance: order.Maintenance != nil,
	}
	if order.Weight != nil {
		in.Weight = &order.Weight.Weight
	}
	for _, w := range one.checks {
		in.Share = min(in.Share, w.share())
		in.Drain = in.Drain || w.command == check.Drain
		in.Maintenance = in.Maintenance || w.command == check.Maintenance
	}
	return in
}

func (c *Core) inputs(s *service) (list []weight.Input) {
	for _, one := range s.servers {
		list = append(list, c.input(one))
	}
	return list
}

var policies = map[config.AllDown]weight.Policy{config.Refuse: weight.Refuse, config.KeepLast: weight.KeepLast, config.UseAll: weight.UseAll}

// Wanted is the whole table as it should be now.
func (c *Core) Wanted() plan.Table {
	t := plan.Table{Timeouts: c.Config.Timeouts}
	for _, s := range c.Config.Settings {
		t.Settings = append(t.Settings, plan.Setting(s))
	}
	for _, s := range c.services {
		t.Services = append(t.Services, c.wanted(s))
	}
	return t
}

// WantedService is one service of it; false if the configuration has none of that
// key.
func (c *Core) WantedService(k model.ServiceKey) (plan.Service, bool) {
	i := slices.IndexFunc(c.services, func(s *service) bool { return s.Key == k })
	if i < 0 {
		return plan.Service{}, false
	}
	return c.wanted(c.services[i]), true
}

func (c *Core) wanted(s *service) plan.Service {
	out := plan.Service{Service: s.Service.Service}
	sorry := s.Sorry != nil && !s.up
	for i, o := range weight.Service(c.inputs(s), policies[s.AllDown], s.last, sorry) {
		one := plan.Server{Server: s.servers[i].Server.Server, Health: o.Health, Absent: o.Absent, Drain: o.Drain}
		one.Weight = o.Weight
		out.Servers = append(out.Servers, one)
	}
	if s.Sorry != nil {
		out.Servers = append(out.Servers, plan.Server{Server: s.Sorry.Server, Absent: !sorry})
	}
	return out
}
