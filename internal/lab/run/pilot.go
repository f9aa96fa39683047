// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"imbang/internal/lab/engine"
	"imbang/internal/lab/load"
	"imbang/internal/lab/measure"
	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

// pilotSize bounds a pilot. Windows are a multiple of 40 ms: a timeline has
// slots of whole milliseconds, 40 of them, and so ends where the window does.
type pilotSize struct {
	probes  int           // at most
	search  time.Duration // after which no probe begins, once a rate has passed
	noise   time.Duration // after which no further repeat begins, beyond two
	window  time.Duration // of a probe
	cells   int           // runs of levels, about
	repeats int           // of a level, at most
	cell    time.Duration // of a level, at least; a whole pilot has the length of the study's cells
}

var (
	wholePilot = pilotSize{probes: 16, search: 16 * time.Second, noise: time.Minute, window: 800 * time.Millisecond, cells: 48, repeats: 6, cell: 600 * time.Millisecond}
	quickPilot = pilotSize{probes: 9, search: 5 * time.Second, noise: 2 * time.Second, window: 400 * time.Millisecond, cells: 6, repeats: 2, cell: 280 * time.Millisecond}
)

const (
	// carriedLeast is the share of the requests that a probe must have answered
	// within its window.
	carriedLeast = 0.99
	// A closed loop gives the first estimate of the capacity: of this many users
	// at least and at most, twice as many as the servers serve at a time.
	fewestUsers, mostUsers = 32, 256
	// light is the fraction of that estimate at which nothing waits.
	light = 0.25
	// pilotSettle bounds the wait for a quiet machine before each run.
	pilotSettle = 150 * time.Millisecond
	// longestProbe bounds a probe's timeout.
	longestProbe = 2 * time.Second
)

const probeRule = "2 of 3 probes: no request lost or answered with 5xx, the generator on schedule, and 99 % of the requests " +
	"answered within the window (those under way at its end at a light load are left out)"

// pilot measures, before the first block, the capacity that the study's rates
// are fractions of, and how much runs of one cell differ. A run that goes on
// has both already.
func (l *lab) pilot(ctx context.Context) error {
	p := &l.config.Plan
	if p.Replay != nil || p.Pilot != nil {
		return nil
	}
	size := wholePilot
	if p.Quick {
		size = quickPilot
	}
	p.Conditions = slices.Clone(p.Conditions)
	if slices.ContainsFunc(p.Conditions, func(c record.Condition) bool { return c.Fraction > 0 }) && p.Capacity == nil {
		if err := l.findCapacity(ctx, size); err != nil {
			return fmt.Errorf("pilot: capacity: %w", err)
		}
	}
	if err := l.noise(ctx, size); err != nil {
		return fmt.Errorf("pilot: %w", err)
	}
	l.env.Plan = *p
	if l.config.Power != nil {
		for _, line := range l.config.Power(*p) {
			l.watch.Note(line)
		}
	}
	return l.out.Environment(l.env)
}

// reference is the competitor of the pilot: the study's, or else the first that
// balances over all servers.
func (l *lab) reference() record.Competitor {
	list, s := l.config.Plan.Competitors, l.config.Study
	for _, is := range []func(record.Competitor) bool{
		func(c record.Competitor) bool { return c.Name == s.Load.Reference },
		func(c record.Competitor) bool { return c.Scheduler != "" && c.Servers == len(s.Servers) },
		func(c record.Competitor) bool { return c.Scheduler != "" },
	} {
		if i := slices.IndexFunc(list, is); i >= 0 {
			return list[i]
		}
	}
	return list[0]
}

// findCapacity searches the capacity and sets the rates of the conditions.
func (l *lab) findCapacity(ctx context.Context, size pilotSize) (err error) {
	p, began := &l.config.Plan, time.Now()
	who, family := l.reference(), l.config.Plan.Conditions[0].Family
	director, err := l.engines[who.Engine].Start(ctx, l.setup(who, family))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, director.Stop(context.WithoutCancel(ctx))) }()

	users := pilotUsers(l.config.Study.Servers)
	c := &record.Capacity{Competitor: who.Name, Family: family, Rule: probeRule}
	probe := func(rate float64, base float64) (record.Probe, error) {
		cell := record.Cell{Competitor: who, Condition: p.Conditions[0]}
		cell.Rate, cell.Users = rate, 0
		if rate == 0 {
			cell.Condition.Users = users
		}
		r, err := l.pilotRun(ctx, cell, director, size.window, true)
		if err != nil {
			return record.Probe{}, err
		}
		out := judge(r, rate, base)
		if rate == 0 {
			out.Users = users
		}
		c.Probes = append(c.Probes, out)
		return out, nil
	}
	closed, err := probe(0, 0)
	if err != nil {
		return err
	}
	if closed.MeanMS <= 0 {
		return fmt.Errorf("%s answered none of the requests of %d users", who.Name, users)
	}
	estimate := float64(users) / closed.MeanMS * 1e3 // each of them waits for one reply at any moment
	idle, err := probe(rounded(light*estimate), 0)
	if err != nil {
		return err
	}
	s := newSearch(estimate, size.probes-len(c.Probes))
	for rate, more := s.next(); more && !(s.low > 0 && time.Since(began) > size.search); rate, more = s.next() {
		made, err := probe(rounded(rate), idle.MeanMS/1e3)
		if err != nil {
			return err
		}
		s.tell(made.Passed)
	}
	rate, found := s.result()
	c.Rate, c.Found = rounded(rate), found
	c.Limit = limit(c.Probes[2:], c.Rate)
	p.Capacity = c
	setRates(p)
	for _, line := range c.Lines() {
		l.watch.Note(line)
	}
	return nil
}

// pilotUsers is how many users keep the servers busy.
func pilotUsers(servers []study.Server) (n int) {
	for _, s := range servers {
		n += 2 * s.Concurrency
	}
	return min(max(n, fewestUsers), mostUsers)
}

// setRates makes the conditions' fractions rates.
func setRates(p *record.Plan) {
	for i := range p.Conditions {
		if c := &p.Conditions[i]; c.Fraction > 0 {
			c.Rate = significant(c.Fraction*p.Capacity.Rate, 3)
		}
	}
}

// judge says what a probe shows. base is the mean response time under a light
// load, in seconds: by Little's law rate*base requests are under way on average
// at any moment, and so at the window's end, however fast the cluster is. Their
// number is about Poisson distributed: two of its standard deviations are
// allowed beside.
func judge(r *load.Result, rate, base float64) record.Probe {
	n := within(r)
	out := record.Probe{
		Rate: rate, Seconds: r.WindowSeconds, Replies: float64(n) / r.WindowSeconds,
		Lost: r.Loss.Total() + r.Status.ServerError, MeanMS: r.Response.MeanMS, Behind: r.Generator.Behind, Reason: r.Generator.Reason,
	}
	if r.Scheduled > 0 {
		under := rate * base
		out.Carried = min(1, (float64(n)+under+2*math.Sqrt(under))/float64(r.Scheduled))
	}
	out.Passed = out.Lost == 0 && !out.Behind && out.Carried >= carriedLeast
	return out
}

// within counts the replies that were complete when the window ended.
func within(r *load.Result) (n int) {
	if r.Timeline == nil {
		return 0
	}
	slots := int(r.WindowSeconds/r.Timeline.SlotSeconds + 1e-6)
	for _, list := range r.Timeline.Replies {
		for _, k := range list[:min(slots, len(list))] {
			n += k
		}
	}
	return n
}

// limit names what failed the probes above the capacity first.
func limit(probes []record.Probe, capacity float64) string {
	lowest := 0.0
	for _, p := range probes {
		if !p.Passed && p.Rate > capacity && (lowest == 0 || p.Rate < lowest) {
			lowest = p.Rate
		}
	}
	generator, cluster := 0, 0
	for _, p := range probes {
		switch {
		case p.Passed || p.Rate != lowest && lowest > 0:
		case p.Behind:
			generator++
		default:
			cluster++
		}
	}
	switch {
	case generator+cluster == 0:
		return record.LimitNone
	case generator > cluster:
		return record.LimitGenerator
	}
	return record.LimitCluster
}

// pilotRun makes one short run of a cell, with all calls of the study mixed.
func (l *lab) pilotRun(ctx context.Context, cell record.Cell, director engine.Instance, window time.Duration, mixed bool) (*load.Result, error) {
	sample := &record.Sample{Cell: cell}
	plan, err := l.loadPlan(sample, director)
	if err != nil {
		return nil, err
	}
	plan.Connections, plan.Duration = 0, window
	plan.Timeout = min(plan.Timeout, longestProbe)
	if mixed {
		plan.Requests = nil
		for _, call := range l.config.Study.Load.Calls {
			sample.Call = call.Name
			plan.Requests = append(plan.Requests, l.request(sample))
		}
	}
	measure.Settle(pilotSettle)
	return load.Run(ctx, plan, nil)
}

// noise measures a competitor several times at each level, by the same arrivals:
// what its runs differ by, the runs of a block will too.
func (l *lab) noise(ctx context.Context, size pilotSize) error {
	who := l.reference()
	out := &record.Pilot{Competitor: who.Name, Blocks: l.config.Plan.Repeats}
	levels := pilotLevels(l.config.Plan.Conditions)
	repeats := min(size.repeats, max(2, size.cells/max(1, len(levels))))
	window := size.cell
	if !l.config.Plan.Quick {
		window = max(window, l.config.Plan.Duration)
	}
	began := time.Now()
	for repeat := 1; repeat <= repeats && (repeat <= 2 || time.Since(began) < size.noise); repeat++ {
		for _, c := range levels {
			r, err := l.pilotCell(ctx, record.Cell{Competitor: who, Condition: c}, window)
			if err != nil {
				return err
			}
			out.Runs = append(out.Runs, record.PilotRun{
				Condition: c, Repeat: repeat, Seconds: r.WindowSeconds, MeanMS: r.Response.MeanMS, P99MS: r.Response.P99MS,
				Throughput: r.NetIOKBs, ReplyRate: r.ReplyRate, Lost: r.Loss.Total(), Behind: r.Generator.Behind,
			})
		}
	}
	l.config.Plan.Pilot = out
	return nil
}

// pilotCell makes one run on a fresh director, as cells have.
func (l *lab) pilotCell(ctx context.Context, cell record.Cell, window time.Duration) (r *load.Result, err error) {
	director, err := l.engines[cell.Engine].Start(ctx, l.setup(cell.Competitor, cell.Family))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, director.Stop(context.WithoutCancel(ctx))) }()
	return l.pilotRun(ctx, cell, director, window, false)
}

// pilotLevels are the conditions of the built-in generator in the first family,
// closed loops by time.
func pilotLevels(conditions []record.Condition) (list []record.Condition) {
	for _, c := range conditions {
		if c.Tool != study.BuiltIn || c.Family != conditions[0].Family || c.Rate == 0 && !c.Closed() {
			continue
		}
		if c.Requests = 0; !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b record.Condition) int { return cmp.Compare(a.Level(), b.Level()) })
	return list
}
