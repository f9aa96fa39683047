// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
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
	suffering := l.suffer(plan.Warmup)
	s.Load, err = l.load(ctx, s.Tool, plan)
	if err = errors.Join(err, suffering.over(ctx)); err != nil {
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

// clocks are the CPU clocks of the servers and the machine at one moment.
type clocks struct {
	servers map[string]time.Duration
	pids    map[string][]int // whose clocks those are
	machine measure.Machine
}

func (l *lab) readClocks() (r clocks, err error) {
	r.servers, r.pids = map[string]time.Duration{}, maps.Clone(l.pids)
	for name, pids := range l.pids {
		for _, pid := range pids {
			t, err := measure.ProcessTime(pid)
			if errors.Is(err, fs.ErrNotExist) && len(l.config.Study.Load.Faults) > 0 {
				continue // it was killed on purpose
			}
			if err != nil {
				return r, fmt.Errorf("real server %s: %w", name, err)
			}
			r.servers[name] += t
		}
	}
	r.machine, err = measure.ReadMachine()
	return r, err
}

// since is what was used between two moments. A server that was started anew
// took the time of its former process along: then nothing is said of servers.
func (r clocks) since(before clocks) record.CPU {
	c := record.CPU{ServersNS: map[string]time.Duration{}, MachineBusy: r.machine.BusySince(before.machine), MachineNS: r.machine.WorkSince(before.machine)}
	if !maps.EqualFunc(r.pids, before.pids, slices.Equal) {
		c.ServersNS = nil
		return c
	}
	for name, t := range r.servers {
		c.ServersNS[name] = t - before.servers[name]
	}
	return c
}
