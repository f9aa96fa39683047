// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/tool"
	"imbang/internal/lab/topology"
)

// programs makes the engines of the plan and finds the programs that they and
// the servers need.
func (l *lab) programs(ctx context.Context) (map[string]string, error) {
	versions, err := server.Versions(ctx, l.config.Study.Servers)
	if err != nil {
		return nil, err
	}
	l.engines = map[string]engine.Engine{}
	for _, c := range l.config.Plan.Competitors {
		if _, done := l.engines[c.Engine]; done {
			continue
		}
		e, ok := engine.New(c.Engine, l.config.Imbang)
		if !ok {
			return nil, fmt.Errorf("engine %q is unknown: want some of %v", c.Engine, engine.Names())
		}
		version, err := e.Version(ctx)
		switch {
		case errors.Is(err, engine.ErrUnavailable):
			l.watch.Note(fmt.Sprintf("engine %s is left out: %v", c.Engine, err))
			e = nil
		case err != nil:
			return nil, fmt.Errorf("engine %s: %w", c.Engine, err)
		case version != "":
			versions[c.Engine] = version
		}
		l.engines[c.Engine] = e
	}
	return versions, l.leaveOut()
}

// leaveOut takes the engines that this kernel does not have out of the plan.
func (l *lab) leaveOut() error {
	p := &l.config.Plan
	p.Competitors = slices.DeleteFunc(slices.Clone(p.Competitors), func(c record.Competitor) bool {
		gone := l.engines[c.Engine] == nil
		if gone && !slices.Contains(p.LeftOut, c.Engine) {
			p.LeftOut = append(p.LeftOut, c.Engine)
		}
		return gone
	})
	p.Cells = len(p.Measured())
	if len(p.Competitors) == 0 {
		return fmt.Errorf("nothing is left to measure: %s is not available here", strings.Join(p.LeftOut, ", "))
	}
	return nil
}

// up builds the cluster and requires that every real server answers with what
// is to be measured.
func (l *lab) up(ctx context.Context, name host.Run) error {
	s := l.config.Study
	spec := topology.Spec{
		ClientNamespaces: s.ClientNamespaces, ClientAddresses: s.ClientAddresses, Servers: len(s.Servers), VirtualAddresses: s.VirtualAddresses,
	}
	for _, f := range s.Families {
		spec.Families = append(spec.Families, topology.Family(f))
	}
	var err error
	if l.cluster, err = topology.Build(name, spec); err != nil {
		return err
	}
	for i, place := range l.cluster.Servers {
		started, err := server.Start(place.Namespace, place.Name, s.Servers[i], l.files, l.config.Lab)
		if err != nil {
			return err
		}
		l.servers = append(l.servers, started)
	}
	for i, srv := range l.servers {
		for _, f := range spec.Families {
			target := netip.AddrPortFrom(l.cluster.Servers[i].Addr[f], server.Port)
			if err := srv.WaitReady(ctx, l.cluster.Clients[0].Namespace, target); err != nil {
				return errors.Join(ctx.Err(), err)
			}
		}
		if l.pids[srv.Name()], err = srv.PIDs(); err != nil {
			return err
		}
	}
	return nil
}

// rehearse starts every competitor once: a misspelt scheduler or a missing
// feature shows now and not after an hour. A quick run tries one an engine and
// meets the others soon enough.
func (l *lab) rehearse(ctx context.Context) error {
	tried := map[string]bool{}
	for _, c := range l.config.Plan.Competitors {
		if l.config.Plan.Quick && tried[c.Engine] {
			continue
		}
		tried[c.Engine] = true
		for _, f := range l.config.Study.Families {
			if err := l.try(ctx, c, f); err != nil {
				return fmt.Errorf("engine %s, scheduler %q, %s: %w", c.Engine, c.Scheduler, f, err)
			}
		}
	}
	return nil
}

// evenly are the schedulers that use every server whatever the load is.
var evenly = []string{"rr", "wrr", "roundrobin", "static-rr", "random"}

// try starts a competitor and requires that it answers, by more than one
// server where it has to: what does not balance must not be measured as if it
// did. Other tools are asked whether they can do what is wanted of them.
func (l *lab) try(ctx context.Context, c record.Competitor, family string) (err error) {
	i, err := l.engines[c.Engine].Start(ctx, l.setup(c, family))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.Stop(context.WithoutCancel(ctx))) }()
	for _, condition := range l.config.Plan.Conditions {
		if condition.Tool == study.BuiltIn || condition.Tool == study.Ping || condition.Family != family ||
			!(record.Cell{Competitor: c, Condition: condition}).Measurable() {
			continue
		}
		if condition.Fraction > 0 && condition.Rate == 0 {
			condition.Rate = 1 // the pilot will say
		}
		plan, err := l.loadPlan(&record.Sample{Cell: record.Cell{Competitor: c, Condition: condition}}, i)
		if err != nil {
			return err
		}
		t, err := tool.New(condition.Tool)
		if err == nil {
			_, err = t.Find()
		}
		if err = errors.Join(err, t.Check(plan)); err != nil {
			return err
		}
	}
	client := l.cluster.Clients[0]
	r, err := load.Run(ctx, load.Plan{
		Targets: i.Targets(), ServerHeader: server.Header, Rate: 500, Connections: 12 * c.Servers, Timeout: max(3*time.Second, l.config.Plan.Timeout),
		Clients: []load.Client{{Namespace: client.Namespace.Path(), Sources: client.Addresses[topology.Family(family)]}},
	}, nil)
	switch {
	case err != nil:
		return err
	case r.Status.Success < r.Scheduled:
		return fmt.Errorf("%d of %d requests failed in the check before the measurements: %+v", r.Scheduled-r.Status.Success, r.Scheduled, r.Loss)
	case len(r.PerServer) < 2 && c.Servers > 1 && slices.Contains(evenly, c.Scheduler):
		return fmt.Errorf("it does not balance: all of %d requests went to one server", r.Scheduled)
	}
	return nil
}

// setup is what a competitor balances.
func (l *lab) setup(c record.Competitor, family string) engine.Setup {
	return engine.Setup{
		Cluster: l.cluster, Family: topology.Family(family), Scheduler: c.Scheduler, Dir: l.files, TLS: l.config.Study.Load.TLS(),
		Servers: l.cluster.Servers[:c.Servers], Weights: l.config.Study.WeightsOf(c.Weights).Weights[:c.Servers],
	}
}

// bpfStats is the switch for BPF run time, and whether it could be thrown.
type bpfStats struct {
	closer io.Closer
	state  string
}

func (b bpfStats) close() {
	if b.closer != nil {
		_ = b.closer.Close()
	}
}

// enableStats switches BPF statistics on. Without them the director's CPU
// time is missing from the tables and all else is measured.
func (l *lab) enableStats() bpfStats {
	c, err := measure.EnableBPFStats()
	if err != nil {
		l.watch.Note(fmt.Sprintf("the director's CPU time will be missing: %v", err))
		return bpfStats{state: err.Error()}
	}
	return bpfStats{c, "on"}
}
