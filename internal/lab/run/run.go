// SPDX-License-Identifier: Apache-2.0

// Package run carries out a study: it builds the cluster, measures every cell
// in random order, stores each sample at once, and takes everything down.
//
// It is the only package of the lab that knows all the others but the
// reports: samples go to files, and what is said of them is made from there.
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"imbang/internal/host"
	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
	"imbang/internal/lab/server"
	"imbang/internal/lab/study"
	"imbang/internal/lab/topology"
)

// Config is a study with what the command line changed.
type Config struct {
	Study *study.Study
	// Name is how the user called the study.
	Name        string
	Out         string
	Plan        record.Plan
	CommandLine []string
	Version     string // of this program
	// Builds are what imbang's programs were built from.
	Builds map[string]record.Build
	Imbang string // path of imbang
	Lab    string // path of imbang-lab, which real servers run
	// Log is what the study replays, nil if nothing.
	Log *Log
	// Resume goes on with the run stored in Out, whose Plan this one is.
	Resume *record.Run
	// Enough reports whether the samples so far answer the study, when
	// blocks are added until they do.
	Enough func(record.Plan, []record.Sample) bool
	// Power states what the plan finds, when the pilot has run.
	Power func(record.Plan) []string
}

// Observer is told how a run goes on.
type Observer interface {
	// Note says something worth a line.
	Note(text string)
	// Planned comes before the first cell, with every cell's expected time,
	// and again when cells are added.
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
	files   string // a directory that is removed with the run

	cluster *topology.Cluster
	servers []server.Server
	pids    map[string][]int
	out     *record.Writer
	env     record.Environment
	outcome Outcome
	samples []record.Sample
	order   int // of the last sample
	piloted time.Duration
}

// descriptors are as many as clients may need whose every connection waits.
const descriptors = 1 << 18

// Run carries out the study. When ctx is cancelled it stops, takes everything
// down, and returns the outcome so far with ctx's error. What was measured is
// stored in every case. The outcome is nil if nothing was.
func Run(ctx context.Context, c Config, watch Observer) (outcome *Outcome, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not permitted: the lab makes network namespaces; run it as root, with sudo")
	}
	load.AllowDescriptors(descriptors)
	l := &lab{config: c, watch: watch, pids: map[string][]int{}}
	programs, err := l.programs(ctx)
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
	l.files = filepath.Join(os.TempDir(), name.String())
	if err := os.Mkdir(l.files, 0o700); err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	defer func() {
		if down := errors.Join(l.down(), os.RemoveAll(l.files)); down != nil {
			err = errors.Join(err, fmt.Errorf("take the cluster down: %w", down))
		}
	}()

	bpf := l.enableStats()
	defer bpf.close()
	defer measure.OneGroup()()
	if err := l.up(ctx, name); err != nil {
		return nil, err
	}
	if err := l.rehearse(ctx); err != nil {
		return nil, err
	}
	if err := l.store(programs, bpf.state); err != nil {
		return nil, err
	}
	l.outcome.Dir = c.Out
	began := time.Now()
	if err := l.pilot(ctx); err != nil {
		return nil, cmp.Or(ctx.Err(), err)
	}
	l.piloted = time.Since(began)
	return &l.outcome, l.measureAll(ctx)
}

// store opens the files that the run goes to.
func (l *lab) store(programs map[string]string, bpfStats string) (err error) {
	if r := l.config.Resume; r != nil {
		l.env, l.samples = r.Environment, r.Samples
		for _, s := range slices.Concat(r.Samples, r.Repeated) {
			l.order = max(l.order, s.Order)
		}
		l.out, err = record.Append(l.config.Out)
		return err
	}
	if l.out, err = record.Create(l.config.Out); err != nil {
		return err
	}
	if l.env, err = l.environment(programs, bpfStats); err != nil {
		return err
	}
	return l.out.Environment(l.env)
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
