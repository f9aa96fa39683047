// SPDX-License-Identifier: Apache-2.0

// Package run carries out a study: it builds the cluster, measures every cell
// in random order, stores each sample at once, and takes everything down.
//
// It is the only package of the lab that knows all the others but the
// reports: samples go to files, and what is said of them is made from there.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
	"imbang/internal/lab/server"
	"imbang/internal/lab/topology"
)

// Observer is told how a run goes on.
type Observer interface {
	// Note says something worth a line.
	Note(text string)
	// Planned comes before the first cell, with every cell's expected time.
	Planned(expected []time.Duration)
	Began(c record.Cell)
	// Within says how far into the cell's load the clock is.
	Within(elapsed time.Duration)
	Ended(s record.Sample)
}

// Outcome is how a run ended.
type Outcome struct {
	Dir      string
	Measured int // cells with a measurement
	Failed   int // cells with an error instead
	Planned  int
}

// lab is a run under way.
type lab struct {
	config  Config
	watch   Observer
	engines map[string]engine.Engine
	list    []engine.Engine

	cluster *topology.Cluster
	servers []*server.Nginx
	pids    map[string][]int
	out     *record.Writer
	env     record.Environment
	outcome Outcome
}

// Run carries out the study. When ctx is cancelled it stops, takes everything
// down, and returns the outcome so far with ctx's error. What was measured is
// stored in every case. The outcome is nil if nothing was.
func Run(ctx context.Context, c Config, watch Observer) (outcome *Outcome, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not permitted: the lab makes network namespaces; run it as root, with sudo")
	}
	l := &lab{config: c, watch: watch, pids: map[string][]int{}}
	if err := l.chooseEngines(); err != nil {
		return nil, err
	}
	nginx, err := server.Version(ctx)
	if err != nil {
		return nil, err
	}
	if err := sweep(watch); err != nil {
		return nil, err
	}
	name, err := host.NewRun(topology.Prefix)
	if err != nil {
		return nil, err
	}
	files := filepath.Join(os.TempDir(), name.String())
	if err := os.Mkdir(files, 0o700); err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	defer func() {
		if down := errors.Join(l.down(), os.RemoveAll(files)); down != nil {
			err = errors.Join(err, fmt.Errorf("take the cluster down: %w", down))
		}
	}()

	bpf := l.enableStats()
	defer bpf.close()
	if err := l.up(ctx, name, files); err != nil {
		return nil, err
	}
	if err := l.rehearse(ctx); err != nil {
		return nil, err
	}
	if l.out, err = record.Create(c.Out); err != nil {
		return nil, err
	}
	l.env = l.environment(nginx, bpf.state)
	if err := l.out.Environment(l.env); err != nil {
		return nil, err
	}
	l.outcome.Dir = c.Out
	return &l.outcome, l.measureAll(ctx)
}

// chooseEngines makes the engines of the plan.
func (l *lab) chooseEngines() error {
	l.engines = map[string]engine.Engine{}
	for _, name := range l.config.Plan.Engines {
		e, ok := engine.New(name, l.config.Executable)
		if !ok {
			return fmt.Errorf("engine %q is unknown: want some of %v", name, engine.Names())
		}
		l.engines[name] = e
		l.list = append(l.list, e)
	}
	return nil
}

// sweep removes what earlier runs left behind when they crashed.
func sweep(watch Observer) error {
	spaces, err := host.Sweep(topology.Prefix)
	if err != nil {
		return fmt.Errorf("remove what an earlier run left behind: %w", err)
	}
	files, err := host.SweepFiles(os.TempDir(), topology.Prefix)
	if err != nil {
		return fmt.Errorf("remove what an earlier run left behind: %w", err)
	}
	if n := len(spaces) + len(files); n > 0 {
		watch.Note(fmt.Sprintf("removed what an earlier run left behind: %d namespaces, %d directories", len(spaces), len(files)))
	}
	return nil
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

// up builds the cluster and requires that every real server answers with the
// page that is to be measured.
func (l *lab) up(ctx context.Context, name host.Run, files string) error {
	s := l.config.Study
	var err error
	l.cluster, err = topology.Build(name, topology.Spec{
		ClientNamespaces: s.ClientNamespaces, ClientAddresses: s.ClientAddresses, Servers: len(s.Weights),
	})
	if err != nil {
		return err
	}
	for _, srv := range l.cluster.Servers {
		n, err := server.Start(srv.Namespace, srv.Name, s.PageBytes, files)
		if err != nil {
			return err
		}
		l.servers = append(l.servers, n)
	}
	for i, n := range l.servers {
		target := netip.AddrPortFrom(l.cluster.Servers[i].Addr, server.Port)
		if err := n.WaitReady(ctx, l.cluster.Clients[0].Namespace, target, s.PageBytes); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if l.pids[n.Name], err = n.PIDs(); err != nil {
			return err
		}
	}
	return nil
}

// down takes everything down, in the order in which nothing complains.
func (l *lab) down() error {
	for _, n := range l.servers {
		n.Stop()
	}
	var errs []error
	if l.cluster != nil {
		errs = append(errs, l.cluster.Close())
	}
	if l.out != nil {
		errs = append(errs, l.out.Close())
	}
	return errors.Join(errs...)
}

// rehearse starts every engine with every scheduler once: a misspelt scheduler
// or a missing feature shows now and not after an hour. A quick run tries one
// scheduler an engine and meets the others soon enough.
func (l *lab) rehearse(ctx context.Context) error {
	for _, e := range l.list {
		schedulers := schedulersOf(e, l.config.Plan)
		if l.config.Plan.Quick {
			schedulers = schedulers[:1]
		}
		for _, s := range schedulers {
			i, err := e.Start(ctx, l.setup(s))
			if err != nil {
				return fmt.Errorf("engine %s, scheduler %s: %w", e.Name(), s, err)
			}
			if err := i.Stop(context.WithoutCancel(ctx)); err != nil {
				return fmt.Errorf("engine %s: stop: %w", e.Name(), err)
			}
		}
	}
	return nil
}

func (l *lab) setup(scheduler string) engine.Setup {
	return engine.Setup{Cluster: l.cluster, Scheduler: scheduler, Weights: l.config.Study.Weights}
}

// measureAll measures every cell of every block.
func (l *lab) measureAll(ctx context.Context) error {
	plan := l.config.Plan
	blocks := schedule(cells(plan, l.list), plan.Repeats, plan.Seed)
	var expected []time.Duration
	for _, block := range blocks {
		for _, c := range block {
			expected = append(expected, Expected(plan, c))
		}
	}
	l.outcome.Planned = len(expected)
	l.watch.Planned(expected)
	began := time.Now()
	for b, block := range blocks {
		if b > 0 && plan.Quick && tooSlow(time.Since(began), b) {
			return l.endAfter(b)
		}
		for i, c := range block {
			if err := l.measureCell(ctx, record.Sample{Cell: c, Block: b + 1, Order: b*len(block) + i + 1}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tooSlow reports whether another block of a quick run would go beyond what a
// quick run may take, by the time that the blocks so far took.
func tooSlow(elapsed time.Duration, blocks int) bool {
	return elapsed+elapsed/time.Duration(blocks) > quickBudget
}

// endAfter makes the blocks measured so far the whole run.
func (l *lab) endAfter(blocks int) error {
	l.watch.Note(fmt.Sprintf("this machine is too slow for %d runs a cell in %v: ending after %d", l.config.Plan.Repeats, quickBudget, blocks))
	l.outcome.Planned = l.outcome.Measured + l.outcome.Failed
	l.env.Plan.Repeats = blocks
	return l.out.Environment(l.env)
}

// measureCell measures one cell and stores what came of it. An error ends the
// run; a cell that failed does not.
func (l *lab) measureCell(ctx context.Context, s record.Sample) error {
	l.watch.Began(s.Cell)
	s.Started = time.Now()
	err := l.measure(ctx, &s)
	if ctx.Err() != nil {
		return ctx.Err() // a cell cut short is no measurement
	}
	if err != nil {
		s.Error, s.Load = err.Error(), nil
		l.outcome.Failed++
	} else {
		l.outcome.Measured++
	}
	if err := l.out.Sample(s); err != nil {
		return err
	}
	l.watch.Ended(s)
	return nil
}
