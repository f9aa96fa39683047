// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"imbang/internal/lab/arrivals"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/tool"
	"imbang/internal/lab/topology"
)

// loadPlan is the load of one cell.
func (l *lab) loadPlan(s *record.Sample, director engine.Instance) (load.Plan, error) {
	p, pop := l.config.Plan, l.config.Study.Load.Popularity
	plan := load.Plan{
		Targets: director.Targets(), TargetsExponent: pop.DestinationZipf, URLs: pop.URLs, URLsExponent: pop.URLZipf,
		ServerHeader: server.Header, Precedence: true, Warmup: p.Warmup, Timeout: p.Timeout, RequestsPerConnection: p.PerConnection,
		// One seed a block: its cells meet the same arrivals, so that
		// schedulers differ and bursts do not.
		Seed: p.Seed + uint64(s.Block),
	}
	for _, c := range l.cluster.Clients {
		plan.Clients = append(plan.Clients, load.Client{Namespace: c.Namespace.Path(), Sources: c.Addresses[topology.Family(s.Family)]})
	}
	if s.KeepAlive {
		plan.RequestsPerConnection = load.Unlimited
	}
	if s.Tool != study.BuiltIn {
		plan.Warmup = 0 // a tool's cell is its one command, as it was published
	}
	if s.Speed > 0 {
		return plan, l.config.Log.fill(&plan, s.Speed, p.Duration)
	}
	if s.Tool != study.Ping {
		plan.Requests = []load.Request{l.request(s)}
	}
	if s.Closed() {
		plan.Concurrency, plan.Connections = s.Users, s.Requests
		if s.Requests == 0 {
			plan.Duration = p.Duration
		}
		return plan, nil
	}
	plan.Rate, plan.Connections, plan.Duration = s.Rate, p.Connections, p.Duration
	if s.Connections > 0 {
		plan.Connections, plan.Duration = s.Connections, 0
	}
	pattern, err := arrivals.Parse(s.Arrivals)
	plan.Arrivals, plan.Shape = pattern.Distribution, pattern.Shape
	return plan, err
}

// request is what a cell sends: the study's, in which {cell} is the number of
// the cell, so that what is to be new in each is new.
func (l *lab) request(s *record.Sample) load.Request {
	calls := l.config.Study.Load.Calls
	c := calls[slices.IndexFunc(calls, func(c study.Call) bool { return c.Name == s.Call })]
	cell := strings.NewReplacer("{cell}", strconv.Itoa(s.Order))
	return load.Request{Name: c.Name, Method: c.Method, Path: cell.Replace(c.Path), Body: cell.Replace(c.Body), ContentType: c.Type, TLS: c.TLS}
}

// load sends it, by the built-in generator or by another tool.
func (l *lab) load(ctx context.Context, name string, plan load.Plan) (*load.Result, error) {
	if name == study.BuiltIn {
		return load.Run(ctx, plan, func(p load.Progress) { l.watch.Within(p.Elapsed) })
	}
	if name == study.Ping {
		return tool.Ping(ctx, plan)
	}
	t, err := tool.New(name)
	if err != nil {
		return nil, err
	}
	return t.Run(ctx, plan, tool.Read)
}
