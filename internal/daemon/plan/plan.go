// SPDX-License-Identifier: Apache-2.0

// Package plan compares the table that is wanted with the one that is there, and
// lists the changes that lead from one to the other: no more than differ, and of no
// service and no server that nobody names. It is pure.
package plan

import (
	"net/netip"
	"slices"
	"time"

	"imbang/internal/model"
)

// Table is a table of services: wanted, or as a configuration was applied.
type Table struct {
	Services []Service
	Settings []Setting
	Timeouts model.Timeouts // zero values stand for any
}

// Service is a virtual service with the servers that a configuration names.
type Service struct {
	model.Service
	Servers []Server
}

// Server is a real server as it is wanted.
type Server struct {
	model.Server
	Health model.Health
	Drain  bool      // takes no new connections, whatever its weight
	Until  time.Time // while it drains: when connections are reset; zero: never
	// SlowStart is the time in which it gets its share when it returns; 0: at once.
	SlowStart time.Duration
	Absent    bool // named, but not to be in the table: a sorry server in reserve, a failed one that is removed
}

// Takes reports whether the server gets new connections.
func (s Server) Takes() bool {
	return !s.Absent && model.Effective(s.Weight, s.Health, s.Drain) > 0
}

// Setting is a setting of the director.
type Setting struct {
	Name  string
	Value uint32
}

// Observed is what the director has.
type Observed struct {
	Services []model.ServiceStatus
	Settings []Setting
	Timeouts model.Timeouts
}

// Kind says what a change does.
type Kind string

// Kinds of changes, in the order in which a plan has them: what is new comes before
// what goes, so that clients find servers all the time.
const (
	Set           Kind = "set"
	SetTimeouts   Kind = "set-timeouts"
	AddService    Kind = "add-service"
	EditService   Kind = "edit-service"
	AddServer     Kind = "add-server"
	EditServer    Kind = "edit-server"
	SetHealth     Kind = "set-health"
	SetWeight     Kind = "set-weight"
	SetDrain      Kind = "set-drain"
	SetSlowStart  Kind = "set-slow-start"
	DeleteServer  Kind = "delete-server"
	DeleteService Kind = "delete-service"
	KeepService   Kind = "keep-service" // not named any more, but it has servers of others
)

// Change is one edit of the director's table.
type Change struct {
	Kind      Kind
	Service   model.Service // of Set and SetTimeouts none
	Server    model.Server
	Health    model.Health
	Drain     bool          // of SetDrain and AddServer
	Until     time.Time     // likewise, as in Server
	SlowStart time.Duration // of AddServer and SetSlowStart
	Setting   Setting
	Timeouts  model.Timeouts
	Was       string // what a changed value was
	Is        string // and will be
}

// Plan is a list of changes.
type Plan struct {
	Changes []Change
	// Named is the number of servers that the applied configuration named; Removed of
	// them the wanted one does not, whether they are in the table or failed and left it.
	// The caller adds those of backends.
	Named, Removed int
}

// Empty reports whether there is nothing to do.
func (p *Plan) Empty() bool {
	return !slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Kind != KeepService })
}

// RemovedShare is the share of the named servers that the plan deletes, 0 to 1.
func (p *Plan) RemovedShare() float64 {
	if p.Named == 0 {
		return 0
	}
	return float64(p.Removed) / float64(p.Named)
}

// Make plans the way from what is observed to what is wanted. Deleted is only what
// applied names and wanted does not: the rest belongs to others.
func Make(wanted, applied Table, observed Observed) *Plan {
	p := &planner{observed: map[model.ServiceKey]*model.ServiceStatus{}}
	for i := range observed.Services {
		p.observed[observed.Services[i].Key] = &observed.Services[i]
	}
	p.settings(wanted, observed)
	for _, s := range wanted.Services {
		p.service(s, find(applied, s.Key))
	}
	for _, s := range applied.Services {
		next := find(wanted, s.Key)
		p.count(s, next)
		if next == nil {
			p.drop(s)
		}
	}
	Sort(p.Changes)
	return &p.Plan
}

// Keep leaves out the deletion of servers and services that the wanted table does not name.
func (p *Plan) Keep(wanted Table) {
	p.Changes = slices.DeleteFunc(p.Changes, func(c Change) bool {
		return c.Kind == DeleteService || c.Kind == KeepService || c.Kind == DeleteServer && !names(find(wanted, c.Service.Key), c.Server.AddrPort())
	})
}

// Named counts servers.
func (t Table) Named() (n int) {
	for i := range t.Services {
		n += len(t.Services[i].Servers)
	}
	return n
}

// Sort puts changes into the order in which they are made. Servers get more clients before others get
// fewer, so that a service has a server for new connections all the time.
func Sort(changes []Change) {
	slices.SortStableFunc(changes, func(a, b Change) int {
		if a.Kind == SetHealth && b.Kind == SetHealth {
			return int(a.Health) - int(b.Health)
		}
		return order(a.Kind) - order(b.Kind)
	})
}

// Union names what either of two tables names.
func Union(a, b Table) Table {
	out := Table{Services: slices.Clone(a.Services), Settings: a.Settings, Timeouts: a.Timeouts}
	for _, s := range b.Services {
		i := slices.IndexFunc(out.Services, func(o Service) bool { return o.Key == s.Key })
		if i < 0 {
			out.Services = append(out.Services, s)
			continue
		}
		o := &out.Services[i]
		o.Servers = slices.Clone(o.Servers)
		for _, one := range s.Servers {
			if !names(o, one.AddrPort()) {
				o.Servers = append(o.Servers, one)
			}
		}
	}
	return out
}

// names reports whether a service has a server of an address.
func names(s *Service, at netip.AddrPort) bool {
	return s != nil && slices.ContainsFunc(s.Servers, func(one Server) bool { return one.AddrPort() == at })
}

func order(k Kind) int {
	return slices.Index([]Kind{Set, SetTimeouts, AddService, EditService, AddServer, EditServer, SetWeight, SetSlowStart, SetHealth, SetDrain, DeleteServer, DeleteService, KeepService}, k)
}

func find(t Table, k model.ServiceKey) *Service {
	i := slices.IndexFunc(t.Services, func(s Service) bool { return s.Key == k })
	if i < 0 {
		return nil
	}
	return &t.Services[i]
}

type planner struct {
	Plan
	observed map[model.ServiceKey]*model.ServiceStatus
}

func (p *planner) add(c Change) { p.Changes = append(p.Changes, c) }

func (p *planner) settings(wanted Table, observed Observed) {
	for _, s := range wanted.Settings {
		i := slices.IndexFunc(observed.Settings, func(o Setting) bool { return o.Name == s.Name })
		if i >= 0 && observed.Settings[i].Value != s.Value {
			p.add(Change{Kind: Set, Setting: s, Was: number(observed.Settings[i].Value), Is: number(s.Value)})
		}
	}
	w, o := wanted.Timeouts, observed.Timeouts
	differ := func(want, have time.Duration) bool { return want != 0 && want != have }
	if differ(w.TCP, o.TCP) || differ(w.TCPFin, o.TCPFin) || differ(w.UDP, o.UDP) {
		p.add(Change{Kind: SetTimeouts, Timeouts: w, Was: timeouts(o), Is: timeouts(w)})
	}
}

// service plans a wanted service; named is what the applied configuration says of it.
func (p *planner) service(s Service, named *Service) {
	o := p.observed[s.Key]
	if o == nil {
		p.add(Change{Kind: AddService, Service: s.Service})
		o = &model.ServiceStatus{}
	} else if o.Service != s.Service {
		was, is := serviceDifference(o.Service, s.Service)
		p.add(Change{Kind: EditService, Service: s.Service, Was: was, Is: is})
	}
	there := serversOf(o)
	for _, one := range s.Servers {
		p.server(s.Service, one, there[one.AddrPort()])
	}
	if named == nil {
		return
	}
	for _, one := range named.Servers {
		at := one.AddrPort()
		if _, is := there[at]; is && !names(&s, at) {
			p.add(Change{Kind: DeleteServer, Service: s.Service, Server: one.Server})
		}
	}
}

func (p *planner) server(s model.Service, want Server, have *model.ServerStatus) {
	switch {
	case want.Absent:
		if have != nil {
			p.add(Change{Kind: DeleteServer, Service: s, Server: want.Server})
		}
	case have == nil:
		p.add(Change{Kind: AddServer, Service: s, Server: want.Server, Health: want.Health, Drain: want.Drain, Until: want.Until, SlowStart: want.SlowStart})
	default:
		if have.Server != want.Server {
			was, is := serverDifference(have.Server, want.Server)
			p.add(Change{Kind: EditServer, Service: s, Server: want.Server, Was: was, Is: is})
		}
		if have.SlowStart != want.SlowStart {
			p.add(Change{Kind: SetSlowStart, Service: s, Server: want.Server, SlowStart: want.SlowStart, Was: have.SlowStart.String(), Is: want.SlowStart.String()})
		}
		if have.Health != want.Health {
			p.add(Change{Kind: SetHealth, Service: s, Server: want.Server, Health: want.Health, Was: have.Health.String(), Is: want.Health.String()})
		}
		if have.Draining != want.Drain {
			p.add(Change{Kind: SetDrain, Service: s, Server: want.Server, Drain: want.Drain, Until: want.Until})
		}
	}
}

// count counts the named servers of a service, and those that are not named any more.
func (p *planner) count(s Service, next *Service) {
	for _, one := range s.Servers {
		p.Named++
		if !names(next, one.AddrPort()) {
			p.Removed++
		}
	}
}

// drop plans that a service goes that was named and is not any more. Servers that
// others added keep it.
func (p *planner) drop(s Service) {
	o := p.observed[s.Key]
	if o == nil {
		return
	}
	there := serversOf(o)
	for _, one := range s.Servers {
		if there[one.AddrPort()] != nil {
			p.add(Change{Kind: DeleteServer, Service: o.Service, Server: one.Server})
			delete(there, one.AddrPort())
		}
	}
	if len(there) > 0 {
		p.add(Change{Kind: KeepService, Service: o.Service, Was: servers(len(there))})
		return
	}
	p.add(Change{Kind: DeleteService, Service: o.Service})
}

func serversOf(o *model.ServiceStatus) map[netip.AddrPort]*model.ServerStatus {
	there := map[netip.AddrPort]*model.ServerStatus{}
	if o == nil {
		return there
	}
	for i := range o.Servers {
		there[o.Servers[i].AddrPort()] = &o.Servers[i]
	}
	return there
}
