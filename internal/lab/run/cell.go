// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// measure carries out one cell on a fresh director.
func (l *lab) measure(ctx context.Context, s *record.Sample) (err error) {
	director, err := l.engines[s.Engine].Start(ctx, l.setup(s.Competitor, s.Family))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, director.Stop(context.WithoutCancel(ctx))) }()

	plan, err := l.loadPlan(s, director)
	if err != nil {
		return err
	}
	measure.Settle(settleAtMost(l.config.Plan))
	s.CalibrationNS = measure.Calibrate()

	// Asking the director may cost a process: it is asked outside the clocks.
	directorBefore, err := director.CPU(ctx)
	if err != nil {
		return err
	}
	before, err := l.readClocks()
	if err != nil {
		return err
	}
	s.Load, err = load.Run(ctx, plan, func(p load.Progress) { l.watch.Within(p.Elapsed) })
	if err != nil {
		return err
	}
	after, err := l.readClocks()
	if err != nil {
		return err
	}
	directorAfter, err := director.CPU(ctx)
	if err != nil {
		return err
	}
	s.CPU = after.since(before)
	s.CPU.Director = directorAfter.Sub(directorBefore)
	return nil
}

// loadPlan is the load of one cell.
func (l *lab) loadPlan(s *record.Sample, director engine.Instance) (load.Plan, error) {
	arrivals, err := arrivalsOf(s.Arrivals)
	if err != nil {
		return load.Plan{}, err
	}
	p := l.config.Plan
	plan := load.Plan{
		Target: director.Target(), ServerHeader: server.Header, Path: l.call(s.Call).Path,
		Rate: s.Rate, Arrivals: arrivals, Warmup: p.Warmup, Timeout: p.Timeout,
		Connections: p.Connections, Duration: p.Duration,
		// One seed a block: its cells meet the same arrivals, so that
		// schedulers differ and bursts do not.
		Seed: p.Seed + uint64(s.Block),
	}
	for _, c := range l.cluster.Clients {
		plan.Clients = append(plan.Clients, load.Client{Namespace: c.Namespace.Path(), Sources: c.Addresses[topology.Family(s.Family)]})
	}
	return plan, nil
}

// call is the study's request of a name.
func (l *lab) call(name string) study.Call {
	calls := l.config.Study.Load.Calls
	return calls[slices.IndexFunc(calls, func(c study.Call) bool { return c.Name == name })]
}

// clocks are the CPU clocks of the servers and the machine at one moment.
type clocks struct {
	servers map[string]time.Duration
	machine measure.Machine
}

func (l *lab) readClocks() (r clocks, err error) {
	r.servers = map[string]time.Duration{}
	for name, pids := range l.pids {
		for _, pid := range pids {
			t, err := measure.ProcessTime(pid)
			if err != nil {
				return r, fmt.Errorf("real server %s: %w", name, err)
			}
			r.servers[name] += t
		}
	}
	r.machine, err = measure.ReadMachine()
	return r, err
}

func (r clocks) since(before clocks) record.CPU {
	c := record.CPU{ServersNS: map[string]time.Duration{}, MachineBusy: r.machine.BusySince(before.machine)}
	for name, t := range r.servers {
		c.ServersNS[name] = t - before.servers[name]
	}
	return c
}
