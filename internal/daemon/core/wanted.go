// SPDX-License-Identifier: Apache-2.0

package core

import (
	"slices"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/plan"
	"imbang/internal/daemon/weight"
	"imbang/internal/model"
)

// input is what is known of a server.
func (c *Core) input(one *server) weight.Input {
	order := c.Book[one.id]
	in := weight.Input{
		Configured: one.Weight, Down: !one.up, Remove: one.service.OnFailure == config.Remove,
		Drain: order.Drain != nil, Maintenance: order.Maintenance != nil,
	}
	if order.Weight != nil {
		in.Weight = &order.Weight.Weight
	}
	for _, w := range one.checks {
		in.Withheld = max(in.Withheld, w.Withheld)
		in.Drain = in.Drain || w.Command == check.Drain
		in.Maintenance = in.Maintenance || w.Command == check.Maintenance
	}
	return in
}

func (c *Core) inputs(s *service) (list []weight.Input) {
	for _, one := range s.servers {
		list = append(list, c.input(one))
	}
	return list
}

// last is the index of the server that went down last, of those that are not out of
// service; -1: there is none.
func (s *service) last(inputs []weight.Input) int {
	last := -1
	for i, in := range inputs {
		if in.Down && !in.Drain && !in.Maintenance && (last < 0 || !s.servers[i].since.Before(s.servers[last].since)) {
			last = i
		}
	}
	return last
}

var policies = map[config.AllDown]weight.Policy{config.Refuse: weight.Refuse, config.KeepLast: weight.KeepLast, config.UseAll: weight.UseAll}

// Wanted is the whole table as it should be now.
func (c *Core) Wanted() plan.Table {
	t := plan.Table{Timeouts: c.Config.Timeouts}
	for _, s := range c.Config.Settings {
		t.Settings = append(t.Settings, plan.Setting(s))
	}
	for _, s := range c.virtual() {
		t.Services = append(t.Services, c.wanted(s))
	}
	return t
}

// virtual are the services of the director: they come before the backends.
func (c *Core) virtual() []*service { return c.services[:len(c.Config.Services)] }

// WantedService is one service of it; false if the configuration has none of that
// key.
func (c *Core) WantedService(k model.ServiceKey) (plan.Service, bool) {
	i := slices.IndexFunc(c.virtual(), func(s *service) bool { return s.Key == k })
	if i < 0 {
		return plan.Service{}, false
	}
	return c.wanted(c.services[i]), true
}

func (c *Core) wanted(s *service) plan.Service {
	out := plan.Service{Service: s.Service.Service}
	sorry := s.Sorry != nil && !s.up
	inputs := c.inputs(s)
	for i, o := range weight.Service(inputs, policies[s.AllDown], s.last(inputs), sorry) {
		one := plan.Server{Server: s.servers[i].Server.Server, Health: o.Health, Absent: o.Absent, Drain: o.Drain, SlowStart: s.servers[i].SlowStart}
		one.Weight = o.Weight
		if order := c.Book[s.servers[i].id].Drain; order != nil && o.Drain {
			one.Until = order.Deadline
		}
		out.Servers = append(out.Servers, one)
	}
	switch twin := s.twin(); {
	case s.Sorry == nil:
	case twin < 0:
		out.Servers = append(out.Servers, plan.Server{Server: s.Sorry.Server, Absent: !sorry})
	case sorry:
		was := out.Servers[twin]
		out.Servers[twin] = plan.Server{Server: s.Sorry.Server, Drain: was.Drain, Until: was.Until}
	}
	return out
}

// twin is the index of the server that is the sorry server, too; -1: none is. A service has an address
// once: the server is in the table as one of the two.
func (s *service) twin() int {
	return slices.IndexFunc(s.servers, func(one *server) bool { return s.Sorry != nil && one.AddrPort() == s.Sorry.AddrPort() })
}

// Configured is the table as the configuration alone has it, whatever the state of its
// servers: by it one configuration is compared with another.
func (c *Core) Configured() plan.Table {
	t := c.Wanted()
	for i, s := range c.virtual() {
		for j := range t.Services[i].Servers {
			one := plan.Server{}
			if j < len(s.servers) {
				one.Server, one.SlowStart = s.servers[j].Server.Server, s.servers[j].SlowStart
			} else {
				one.Server = s.Sorry.Server
			}
			t.Services[i].Servers[j] = one
		}
	}
	return t
}
