// SPDX-License-Identifier: Apache-2.0

// Package simulate plays a study of load balancing in virtual time: simulated
// clients and servers around the real data plane. Every connection is opened
// and closed by packets that go through the compiled programs
// (testrun.Virtual), so that the schedulers, the connection table and the
// counts of active and inactive connections are those that balance real
// traffic. There is no second implementation of a scheduler here.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"imbang/internal/lab/rng"
)

// Results is what a simulation came to.
type Results struct {
	Config   Config    `json:"config"`
	Outcomes []Outcome `json:"outcomes"` // in the order of cells: rate, scheduler, repeat
	// ConnectionsPerSecond is how many connections were simulated in a second of
	// wall time, all jobs together.
	ConnectionsPerSecond float64 `json:"connections_per_second"`
	WallSeconds          float64 `json:"wall_seconds"`
}

// Run plays every scheduler at every rate, Repeats times. In a repeat all
// schedulers meet the same connections.
func Run(ctx context.Context, c Config) (_ *Results, err error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	began := time.Now()
	s, err := newStage(&c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	outcomes, err := s.play(ctx, &c)
	if err != nil {
		return nil, err
	}
	r := &Results{Config: c, Outcomes: outcomes, WallSeconds: time.Since(began).Seconds()}
	r.ConnectionsPerSecond = float64(len(outcomes)*c.Connections) / r.WallSeconds
	return r, nil
}

// stage is data planes to play on, each for one job at a time.
type stage struct {
	network *network
	planes  []*plane
}

// newStage makes one that is large enough for all of the configurations, which
// have as many jobs as the first.
func newStage(all ...*Config) (*stage, error) {
	servers, connections := 0, uint32(0)
	for _, c := range all {
		servers, connections = max(servers, len(c.Servers)), max(connections, c.tableSize())
	}
	n, err := newNetwork()
	if err != nil {
		return nil, err
	}
	s := &stage{network: n}
	for range all[0].Jobs {
		p, err := newPlane(n, servers, connections)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.planes = append(s.planes, p)
	}
	return s, nil
}

func (s *stage) close() error {
	for _, p := range s.planes {
		p.v.Close()
	}
	return s.network.Close()
}

// cells are the runs to come.
func cells(c *Config) (all []Outcome) {
	for _, rate := range c.Rates {
		for _, scheduler := range c.Schedulers {
			for repeat := range c.Repeats {
				all = append(all, Outcome{Scheduler: scheduler, Rate: rate, Repeat: repeat, Seed: rng.Seed(c.Seed, uint64(repeat))})
			}
		}
	}
	return all
}

// play runs the cells, as many at a time as there are planes.
func (s *stage) play(ctx context.Context, c *Config) ([]Outcome, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all := cells(c)
	advance := progress(c, len(all)*c.Connections)
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, len(s.planes))
	for job, p := range s.planes {
		group.Go(func() {
			errs[job] = s.network.ns.Do(func() error {
				for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
					if err := runCell(ctx, p, c, &all[i], advance); err != nil {
						stop()
						return err
					}
				}
				return nil
			})
		})
	}
	group.Wait()
	return all, firstCause(errs)
}

// firstCause is the error that stopped the others.
func firstCause(errs []error) error {
	var canceled error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		canceled = errors.Join(canceled, err)
	}
	if canceled != nil {
		return context.Canceled
	}
	return nil
}

// progress counts connections, and tells of them now and then.
func progress(c *Config, all int) func(int) {
	if c.Progress == nil {
		return func(int) {}
	}
	const step = 1 << 12
	var count atomic.Int64
	return func(n int) {
		now := count.Add(int64(n))
		if now/step != (now-int64(n))/step || now == int64(all) {
			c.Progress(int(now), all)
		}
	}
}

// runCell runs one. The calling thread is in the network's namespace.
func runCell(ctx context.Context, p *plane, c *Config, o *Outcome, advance func(int)) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fail := func(err error) error {
		if errors.Is(err, context.Canceled) {
			return err
		}
		return fmt.Errorf("%s at %g connections/s: %w", o.Scheduler, o.Rate, err)
	}
	began := time.Now()
	if err := p.begin(c, o.Scheduler, o.Seed); err != nil {
		return fail(err)
	}
	w := newWorld(c, p, o.Rate, o.Seed, advance)
	if err := w.run(ctx); err != nil {
		return fail(err)
	}
	done, err := w.outcome()
	if err != nil {
		return fail(err)
	}
	done.Scheduler, done.Rate, done.Repeat, done.Seed = o.Scheduler, o.Rate, o.Repeat, o.Seed
	done.WallSeconds = time.Since(began).Seconds()
	*o = done
	return nil
}
