// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"imbang/internal/daemon/api"
	"imbang/internal/daemon/core"
	"imbang/internal/daemon/l7"
	"imbang/internal/daemon/l7/haproxy"
	"imbang/internal/daemon/l7/haproxy/runtime"
	"imbang/internal/daemon/l7/supervise"
	"imbang/internal/daemon/operator"
)

// proxyStatus is what the daemon knows of layer 7 itself; nil: there is none.
func (d *Daemon) proxyStatus() *api.Proxy {
	c := d.core.Config.Layer7
	if c == nil {
		return nil
	}
	p := &api.Proxy{Workers: []int{}, Old: []int{}, Listeners: []api.Listener{}, Backends: []api.Service{}, Certificates: []api.Certificate{}}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		one := api.Listener{Name: l.Name, TLS: l.TLS != nil, Bind: []string{}}
		for _, ap := range l.Bind {
			one.Bind = append(one.Bind, ap.String())
		}
		p.Listeners = append(p.Listeners, one)
	}
	d.layer7.prints.look(d.core.Config)
	for _, path := range slices.Sorted(maps.Keys(d.layer7.prints.of)) {
		p.Certificates = append(p.Certificates, api.Certificate{File: path, Fingerprint: d.layer7.prints.of[path]})
	}
	if d.layer7.keeper != nil {
		s := d.layer7.keeper.Status()
		p.Version, p.Reloads, p.Because, p.Error = s.Version, s.Reloads, s.Why, s.Problem
		p.PublicError = haproxy.Public(s.Problem)
		for i := range p.Certificates {
			one := &p.Certificates[i]
			one.Expires, one.Error = s.Expiries[one.File], s.Certificates[one.File]
		}
		for i := range c.Listeners {
			p.Listeners[i].NotServed = notServed(&c.Listeners[i], s.Expiries, s.Certificates)
		}
	}
	if o := d.layer7.order.Drain; o != nil {
		p.Drain = order(o.Order)
		p.Drain.Deadline = o.Deadline
	}
	return p
}

// notServed reports whether a listener has certificates, and HAProxy uses none of them.
func notServed(l *l7.Listener, expiries map[string]time.Time, errs map[string]string) bool {
	return l.TLS != nil && !slices.ContainsFunc(l.TLS.Certificates, func(path string) bool {
		return !expiries[path].IsZero() || errs[path] == ""
	})
}

// backendStatus is a backend without what HAProxy says.
func (d *Daemon) backendStatus(v core.ServiceView) api.Service {
	s := service(v, nil)
	s.Key, s.Missing = v.ID().String(), false
	for i := range d.core.Config.Layer7.Backends {
		if b := &d.core.Config.Layer7.Backends[i]; b.Name == v.Backend {
			s.Scheduler = string(b.Method)
		}
	}
	for i, one := range v.Servers {
		s.Servers[i].Effective = one.Wanted.Weight
		if s.Servers[i].State == "missing" { // in the table, where it is not to be
			s.Servers[i].State = "up"
			if len(one.Checks) == 0 {
				s.Servers[i].State = "unchecked"
			}
		}
	}
	return s
}

// proxyPatience is how long a status waits for HAProxy.
const proxyPatience = time.Second

// askProxy adds what HAProxy and its supervisor say. It is not called by the loop.
func (d *Daemon) askProxy(p *api.Proxy) {
	ctx, cancel := context.WithTimeout(context.Background(), proxyPatience)
	defer cancel()
	switch s, err := supervise.Ask(ctx, d.layer7.dir, supervise.DoStatus); {
	case errors.Is(err, supervise.ErrNone):
		p.State = "none"
	case err != nil:
		p.State = "none"
	default:
		p.State, p.Starts = string(s.Phase), s.Starts
		p.Workers, p.Old = append(p.Workers, s.Workers...), append(p.Old, s.Old...)
	}
	worker := &runtime.Client{Path: supervise.RuntimeSocket(d.layer7.dir), Timeout: proxyPatience}
	stats, err := worker.Stats(ctx)
	if err != nil {
		return
	}
	for _, s := range stats {
		now, _ := strconv.ParseUint(s["scur"], 10, 64)
		switch s["svname"] {
		case "FRONTEND":
			for i := range p.Listeners {
				if p.Listeners[i].Name == s["pxname"] {
					p.Listeners[i].Connections = now
					p.Listeners[i].Requests, _ = strconv.ParseUint(s["req_tot"], 10, 64)
				}
			}
		case "BACKEND":
		default:
			addActive(p.Backends, operator.ServiceID{Backend: s["pxname"]}.String(), s["svname"], uint32(min(now, 1<<32-1)))
		}
	}
}

func addActive(backends []api.Service, name, server string, active uint32) {
	for i := range backends {
		if backends[i].Name != name {
			continue
		}
		for j := range backends[i].Servers {
			if backends[i].Servers[j].Name == server {
				backends[i].Servers[j].Active = active
			}
		}
	}
}
