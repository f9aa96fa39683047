// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"imbang/internal/lab/stats"
)

// TrafficCost is what packets of one kind cost by one path.
type TrafficCost struct {
	PacketKind
	Path string `json:"path"` // tc or xdp
	NS   Cost   `json:"ns"`
	// Passed: XDP leaves such packets to the classifiers, whose cost is not in it.
	Passed bool `json:"passed,omitempty"`
	// Other is the cost with the other build, Over the ratio to it, round by round.
	Other  *Cost           `json:"other_ns,omitempty"`
	Over   *stats.Summary  `json:"over,omitempty"`
	Within *stats.Interval `json:"over_interval,omitempty"`

	rounds, others []float64
}

// trafficRun measures the groups of cases of many addresses.
type trafficRun struct {
	PacketsConfig
	builds  []packetsBuild // the own one first
	making  []float64
	result  []TrafficCost
	missing []string
	step    func()
}

// measureTraffic adds to a result, and returns the times of making packets.
func (c PacketsConfig) measureTraffic(ctx context.Context, r *PacketsResult, step func()) (making []float64, err error) {
	groups := c.groups()
	if len(groups) == 0 {
		return nil, nil
	}
	t := &trafficRun{PacketsConfig: c, result: r.Traffic, builds: []packetsBuild{&ownBuild{}}, step: step}
	if c.Against != "" {
		other, err := startBuild(c.Against)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, other.stop()) }()
		t.builds, r.Other = append(t.builds, other), &other.PacketsBuild
	}
	for _, g := range groups {
		if err := t.group(ctx, g); err != nil {
			return nil, err
		}
	}
	r.Traffic, r.Missing = t.result, t.missing
	r.Targets = append(append(r.Targets, relativeTargets(t.result)...), shareTargets(t.result)...)
	return t.making, nil
}

// group measures cases that take turns.
func (t *trafficRun) group(ctx context.Context, cases []packetCase) (err error) {
	if want := mostCPUs(cases); want > 1 {
		if _, err := usableCPUs(want); err != nil {
			t.missing = append(t.missing, fmt.Sprintf("%s: %v", cases[0].Measure, err))
			return nil
		}
	}
	defer func() {
		for _, b := range t.builds {
			err = errors.Join(err, b.closeAll())
		}
	}()
	for i, c := range cases {
		for _, b := range t.builds {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := b.open(i, c); err != nil {
				return fmt.Errorf("%s: %w", c.Measure, err)
			}
		}
		t.step()
	}
	return t.takeTurns(ctx, cases)
}

func mostCPUs(cases []packetCase) (n int) {
	for _, c := range cases {
		n = max(n, c.CPUs)
	}
	return n
}

// packetTurn is what is measured once a round.
type packetTurn struct{ site, path, build int }

// takeTurns measures all cases by all paths with all builds, in random order in each round.
func (t *trafficRun) takeTurns(ctx context.Context, cases []packetCase) error {
	var turns []packetTurn
	for i := range cases {
		for p := range trafficPaths {
			for b := range t.builds {
				turns = append(turns, packetTurn{i, p, b})
			}
		}
	}
	samples := map[packetTurn][]packetRound{}
	for round := range 1 + t.rounds(trafficRounds) {
		for _, turn := range shuffled(slices.Clone(turns)) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r, err := t.builds[turn.build].round(turn.site, trafficPaths[turn.path].name)
			if err != nil {
				return fmt.Errorf("%s by %s: %w", cases[turn.site].Measure, trafficPaths[turn.path].name, err)
			}
			if round > 0 { // the first one fills caches
				samples[turn] = append(samples[turn], r)
			}
		}
		t.step()
	}
	for i, c := range cases {
		for p := range trafficPaths {
			t.conclude(c, p, func(build int) []packetRound { return samples[packetTurn{i, p, build}] })
		}
	}
	return nil
}

// conclude adds a row.
func (t *trafficRun) conclude(c packetCase, path int, of func(build int) []packetRound) {
	row := TrafficCost{PacketKind: c.PacketKind, Path: trafficPaths[path].name}
	passed := 0
	for _, r := range of(0) {
		row.rounds = append(row.rounds, r.NS)
		if c.Forward != ipip { // made one by one, with the clock
			t.making = append(t.making, r.Making)
		}
		if r.Passed {
			passed++
		}
	}
	// One packet a second is left to the classifiers anyway.
	row.NS, row.Passed = stats.Summarize(row.rounds), 2*passed > len(row.rounds)
	if len(t.builds) > 1 {
		for _, r := range of(1) {
			row.others = append(row.others, r.NS)
		}
		other, over := stats.Summarize(row.others), ratiosOf(row.rounds, row.others)
		ratio, within := stats.Summarize(over), stats.MedianInterval(over, confidence)
		row.Other, row.Over, row.Within = &other, &ratio, &within
	}
	t.result = append(t.result, row)
}

// ratiosOf are those of two lists of rounds. What costs nothing is compared with nothing.
func ratiosOf(a, b []float64) (list []float64) {
	for i := range min(len(a), len(b)) {
		if a[i] > 0 && b[i] > 0 {
			list = append(list, a[i]/b[i])
		}
	}
	return list
}

// steps is how often measureTraffic calls step.
func (c PacketsConfig) steps() (n int) {
	for _, g := range c.groups() {
		n += len(g) + 1 + c.rounds(trafficRounds)
	}
	return n
}
