// SPDX-License-Identifier: Apache-2.0

package core

import (
	"iter"
	"slices"
	"time"

	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/model"
)

// ServiceView is a service as it is known.
type ServiceView struct {
	*config.Service
	Up      bool // has its quorum
	Since   time.Time
	Sorry   bool // the sorry server gets the clients
	Servers []ServerView
}

// ServerView is a server as it is known.
type ServerView struct {
	*config.Server
	ID     operator.ServerID
	Up     bool // no check says else
	Since  time.Time
	Order  operator.State
	Agent  check.Command
	Wanted plan.Server
	Checks []CheckView
}

// CheckView is one check of a server.
type CheckView struct {
	*config.Check
	State check.State
}

// View is all services.
func (c *Core) View() (list []ServiceView) {
	for _, s := range c.services {
		v := ServiceView{Service: s.Service, Up: s.up, Since: s.since, Sorry: s.Sorry != nil && !s.up}
		wanted := c.wanted(s)
		for i, one := range s.servers {
			sv := ServerView{Server: one.Server, ID: one.id, Up: one.up, Since: one.since, Order: c.Book[one.id], Wanted: wanted.Servers[i]}
			for _, w := range one.checks {
				sv.Checks = append(sv.Checks, CheckView{w.Check, w.State})
				sv.Agent = max(sv.Agent, w.Command)
			}
			v.Servers = append(v.Servers, sv)
		}
		list = append(list, v)
	}
	return list
}

// Unchecked are the services of the director without any check: how many servers each has that are not
// in maintenance. Services without such a server are left out.
func (c *Core) Unchecked() map[model.ServiceKey]int {
	out := map[model.ServiceKey]int{}
	for _, s := range c.virtual() {
		if slices.ContainsFunc(s.servers, func(one *server) bool { return len(one.checks) > 0 }) {
			continue
		}
		for _, one := range s.servers {
			if c.Book[one.id].Maintenance == nil {
				out[s.Key]++
			}
		}
	}
	return out
}

// Health is what the checks of one server say.
type Health struct {
	Service *config.Service
	ID      operator.ServerID
	Up      bool
	Checks  []CheckView // valid until the next one
}

// Health is all servers that are checked now.
func (c *Core) Health() iter.Seq[Health] {
	return func(yield func(Health) bool) {
		var checks []CheckView
		for _, s := range c.services {
			for _, one := range s.servers {
				if len(one.checks) == 0 || c.Book[one.id].Maintenance != nil {
					continue
				}
				checks = checks[:0]
				for _, w := range one.checks {
					checks = append(checks, CheckView{w.Check, w.State})
				}
				if !yield(Health{s.Service, one.id, one.up, checks}) {
					return
				}
			}
		}
	}
}
