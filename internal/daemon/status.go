// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"net/netip"
	"os"
	"slices"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/check"
	"imbang/internal/daemon/config"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/events"
	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/plan"
	"imbang/internal/director"
	"imbang/internal/model"
	"imbang/internal/version"
)

// Events implements api.Daemon.
func (d *Daemon) Events() *events.Log { return d.events }

// Status implements api.Daemon.
func (d *Daemon) Status() (s *api.Status, err error) {
	err = d.do(func() error {
		s = d.status()
		return nil
	})
	if err == nil && s.Proxy != nil {
		d.askProxy(s.Proxy)
	}
	return s, err
}

func (d *Daemon) status() *api.Status {
	s := &api.Status{
		PID: os.Getpid(), Version: version.Version, Since: d.started, Config: absolute(d.File), Reloaded: d.reloaded,
		Services: []api.Service{}, Alarms: []api.Alarm{}, Drift: slices.Concat([]string{}, d.drift),
	}
	s.Synchronization, s.Replication, s.Pair = d.synchronization(), d.replication(), d.pairStatus(time.Now())
	s.NoDirector = d.table.none
	s.VRRP = d.core.Config.VRRP != nil
	if d.failure != nil {
		s.ReloadError = d.failure.Error()
	}
	for _, a := range d.alarms {
		s.Alarms = append(s.Alarms, a)
	}
	slices.SortFunc(s.Alarms, func(a, b api.Alarm) int { return cmp.Compare(a.Name, b.Name) })
	delay := d.runner.Delay()
	s.Checks = api.Checks{Made: delay.Checks, DelayP50MS: milliseconds(delay.P50), DelayP99MS: milliseconds(delay.P99)}
	d.core.Each(func(core.CheckID, *config.Check, *config.Service, *config.Server) { s.Checks.Jobs++ })
	var services []model.ServiceStatus
	if err := d.table.use(func(t *director.Director) (err error) { services, err = t.Services(); return err }); err != nil {
		d.raise(alarmDirector, err.Error())
	} else {
		d.noteMissing(services, time.Now())
	}
	s.Proxy = d.proxyStatus()
	for _, v := range d.core.View() {
		if v.Backend != "" {
			s.Proxy.Backends = append(s.Proxy.Backends, d.backendStatus(v))
			continue
		}
		i := slices.IndexFunc(services, func(o model.ServiceStatus) bool { return o.Key == v.Key })
		one := service(v, nil)
		if i >= 0 {
			one = service(v, &services[i])
		}
		d.dateMissing(&one, v)
		s.Services = append(s.Services, one)
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// service is a service with what the table has of it; nil: nothing.
func service(v core.ServiceView, table *model.ServiceStatus) api.Service {
	s := api.Service{
		Name: v.Name, Key: v.Key.String(), Scheduler: v.Scheduler, Up: v.Up, Since: v.Since, Quorum: v.Quorum,
		Sorry: v.Sorry, Missing: table == nil, Servers: []api.Server{},
	}
	there := map[netip.AddrPort]*model.ServerStatus{}
	if table != nil {
		for i := range table.Servers {
			there[table.Servers[i].AddrPort()] = &table.Servers[i]
		}
	}
	for _, one := range v.Servers {
		s.Servers = append(s.Servers, server(one, there[one.AddrPort()]))
	}
	return s
}

func server(v core.ServerView, table *model.ServerStatus) api.Server {
	s := api.Server{
		Name: v.Name, Address: v.AddrPort().String(), State: state(v, table), Since: v.Since, Weight: v.Wanted.Weight,
		Health: v.Wanted.Health.String(), Checks: []api.Check{}, Agent: v.Agent.String(),
	}
	if table != nil {
		s.Weight, s.Health, s.Effective, s.Active, s.Inactive = table.Weight, table.Health.String(), table.EffectiveWeight(), table.Active, table.Inactive
		s.Ramp = table.Ramp
	}
	s.Drain, s.Maintenance, s.WeightOrder = orders(v.Order)
	for _, o := range []*api.Order{s.Drain, s.Maintenance} {
		if o != nil {
			s.Since = o.At
		}
	}
	for _, c := range v.Checks {
		s.Checks = append(s.Checks, api.Check{
			Name: c.Name, Kind: c.Kind, State: c.State.Verdict.String(), Since: c.State.Since, At: c.State.At, OK: c.State.Last.OK,
			Detail: c.State.Last.Detail, Row: c.State.Row, Runs: c.State.Runs, Fails: c.State.Fails,
		})
	}
	return s
}

// orders are those of a server.
func orders(s operator.State) (drain, maintenance, weight *api.Order) {
	if s.Drain != nil {
		drain = order(s.Drain.Order)
		drain.Deadline = s.Drain.Deadline
	}
	if s.Maintenance != nil {
		maintenance = order(*s.Maintenance)
	}
	if s.Weight != nil {
		weight = order(s.Weight.Order)
		weight.Weight = &s.Weight.Weight
	}
	return drain, maintenance, weight
}

func order(o operator.Order) *api.Order { return &api.Order{By: o.By, At: o.At, Reason: o.Reason} }

// stateMissing is the state of a server that is not in the table.
const stateMissing = "missing"

// state is a server's state in one word.
func state(v core.ServerView, table *model.ServerStatus) string {
	switch {
	case v.Order.Maintenance != nil || v.Agent == check.Maintenance:
		return "maintenance"
	case v.Order.Drain != nil || v.Agent == check.Drain:
		return "drain"
	case !v.Up:
		return "down"
	case table == nil:
		return stateMissing
	case len(v.Checks) == 0:
		return "unchecked"
	}
	return "up"
}

// Plan implements api.Daemon.
func (d *Daemon) Plan(q api.PlanRequest) (reply *api.Plan, err error) {
	n := d.candidate(cmp.Or(q.File, d.File))
	if err := cmp.Or(n.err, n.refused); err != nil {
		return nil, api.Conflict(err)
	}
	c := n.config
	err = d.do(func() error {
		next, _ := d.core.Reload(c, time.Now())
		_, o, err := d.observe()
		if err != nil {
			return err
		}
		p := plan.Make(next.Wanted(), d.applied, o)
		_ = d.allowed(c, p, layer7Of(d.core.Config), true) // it counts
		reply = planned(p, d.hostChanges(c))
		return nil
	})
	return reply, err
}

// Reload implements api.Daemon. HAProxy has followed when it returns: what was removed gets no
// request any more.
func (d *Daemon) Reload(by api.Caller, q api.ReloadRequest) (reply *api.Plan, err error) {
	var follow followed
	n := d.candidate(d.File)
	err = d.do(func() error {
		p, host, err := d.reload(n, q.Force, by.Name)
		if err != nil {
			return api.Conflict(err)
		}
		reply, follow = planned(p, host), d.following()
		return nil
	})
	if err == nil {
		reply.Warnings = follow.warnings("the configuration is applied")
	}
	return reply, err
}
