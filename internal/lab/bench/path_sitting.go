// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"imbang/internal/lab/measure"
)

// sitting sets everyone up, each in a cluster of its own, and measures until so
// many rounds are done. Figures that are compared are then taken right after
// each other. What chance does to a set-up (where memory is, what a hash is
// seeded with) stays as long as it: therefore there are several.
func (p *pathRun) sitting(ctx context.Context, names []string, until int) (err error) {
	var sites []*pathSite
	defer func() {
		for _, s := range sites {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	for _, name := range names {
		s, err := p.newSite(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sites = append(sites, s)
	}
	measure.Settle(2 * time.Second)
	if err := p.rehearse(ctx, sites); err != nil {
		return err
	}
	for p.done < until {
		if err := p.round(ctx, sites); err != nil {
			return err
		}
	}
	return nil
}

// rehearse gives everyone a turn that is not counted. It shows that all three
// servers answer; the first one also that the large file arrives whole, and
// what the slowest carries: a third of that is the open loop's rate.
func (p *pathRun) rehearse(ctx context.Context, sites []*pathSite) error {
	slowest := 0.0
	for _, s := range sites {
		rate, err := s.rehearse(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if slowest == 0 || rate < slowest {
			slowest = rate
		}
		s.tally = p.tallies[s.name] // from here on it counts
	}
	if p.Rate == 0 {
		p.Rate = max(100, float64(int(slowest/3)/100*100))
	}
	p.result.Rate = p.Rate
	return nil
}

// rehearse returns new connections per second, at its best.
func (s *pathSite) rehearse(ctx context.Context) (rate float64, err error) {
	for range 3 {
		r, err := s.closed(ctx, 1)
		if err != nil {
			return 0, err
		}
		rate = max(rate, r.ReplyRate)
	}
	if s.done == 0 {
		if _, err := fetch(ctx, s.client(), s.targets[0].String(), nil, s.Megabytes); err != nil {
			return 0, err
		}
	}
	if err := s.tally.allAnswered(); err != nil {
		return 0, err
	}
	s.pids, err = s.processes() // all of which there are by now
	return rate, err
}

// allAnswered wants each server to have given a fair share of the replies.
func (t *pathTally) allAnswered() error {
	shares := t.shares()
	if len(shares) < pathServers || slices.Min(shares) < 0.5/pathServers {
		return fmt.Errorf("the servers' shares of the replies are %.2f: not equal", shares)
	}
	return nil
}

// shares are the servers' parts of the replies.
func (t *pathTally) shares() (list []float64) {
	all := 0
	for _, n := range t.replies {
		all += n
	}
	for _, server := range slices.Sorted(maps.Keys(t.replies)) {
		list = append(list, float64(t.replies[server])/float64(all))
	}
	return list
}

// round takes each kind of sample of everyone before the next kind, all in
// random order. What an unfinished round has brought is not kept.
func (p *pathRun) round(ctx context.Context, sites []*pathSite) error {
	kinds := slices.Clone(pathSamples)
	p.others = othersShare{}
	loop := float64(measure.Calibrate().Microseconds()) / 1000
	steps := 0
	for _, sample := range shuffled(kinds) {
		for _, s := range shuffled(sites) {
			err := sample(ctx, s)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			steps++
			if each := len(sites) * len(kinds); p.Progress != nil {
				p.Progress(p.done*each+steps, p.Rounds*each)
			}
		}
	}
	p.done++
	p.loop, p.shares = append(p.loop, loop), append(p.shares, p.others.take())
	for _, s := range sites {
		for m, v := range s.got {
			p.samples[s.name][m] = append(p.samples[s.name][m], v)
		}
	}
	return nil
}
