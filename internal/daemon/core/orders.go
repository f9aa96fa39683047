// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"imbang/internal/daemon/config"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
	"imbang/internal/model"
)

// Order changes what is ordered of a server. text says what, for the event.
func (c *Core) Order(id operator.ServerID, state operator.State, by, text string, now time.Time) (out Outcome) {
	one := c.servers[id]
	if one == nil {
		return out
	}
	maintained := c.Book[id].Maintenance != nil
	c.Book = c.Book.Change(id, state)
	e := c.event(now, events.Ordered, one, text)
	e.By = by
	out.Events = append(out.Events, e)
	out.Changed = []operator.ServiceID{id.Service}
	if maintained && state.Maintenance == nil { // what was known is outdated
		for _, w := range one.checks {
			w.State = w.Begin(now)
		}
		one.up, one.since = one.healthy(), now
	}
	out.add(c.settle(one.service, now))
	return out
}

// Find is the servers that a user means: by name or address, of a service by name or
// key, or of all services if that is empty.
func (c *Core) Find(server, service string) (ids []operator.ServerID, err error) {
	known := false
	for _, s := range c.services {
		if service != "" && s.Name != service && s.ID().String() != service && s.Backend != service && !isEndpoint(s.Key, service) {
			continue
		}
		known = true
		for _, one := range s.servers {
			if one.Name == server || one.Addr.String() == server || one.id.Server.String() == server {
				ids = append(ids, one.id)
			}
		}
	}
	switch {
	case !known:
		return nil, fmt.Errorf("service %q: the configuration has none of that name (it has %s)", service, strings.Join(c.serviceNames(), ", "))
	case len(ids) == 0 && service != "":
		return nil, fmt.Errorf("server %q: service %s has none of that name or address", server, service)
	case len(ids) == 0:
		return nil, fmt.Errorf("server %q: the configuration has none of that name or address", server)
	}
	return ids, nil
}

// isEndpoint reports whether a text is a service's address and port.
func isEndpoint(k model.ServiceKey, text string) bool {
	at, err := netip.ParseAddrPort(text)
	return err == nil && k.Mark == 0 && at == netip.AddrPortFrom(k.Addr, k.Port)
}

func (c *Core) serviceNames() (names []string) {
	for _, s := range c.services {
		names = append(names, s.Name)
	}
	return names
}

// Name is a server as the configuration calls it, with its service.
func (c *Core) Name(id operator.ServerID) (service, server string) {
	if one := c.servers[id]; one != nil {
		return one.service.Name, one.Name
	}
	return id.Service.String(), id.Server.String()
}

// Has reports whether the configuration has a server.
func (c *Core) Has(id operator.ServerID) bool { return c.servers[id] != nil }

// Each calls for every check that is to be made, in the order of the configuration;
// those of servers in maintenance are not.
func (c *Core) Each(call func(id CheckID, ch *config.Check, s *config.Service, one *config.Server)) {
	for _, s := range c.services {
		for _, one := range s.servers {
			if c.Book[one.id].Maintenance != nil {
				continue
			}
			for _, w := range one.checks {
				call(CheckID{one.id, w.Name}, w.Check, s.Service, one.Server)
			}
		}
	}
}
