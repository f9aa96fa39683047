// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"flag"
	"testing"
	"time"
)

var moreFaults = flag.Int("faults", 0, "more faults in each scenario of TestExplore; the states grow by a factor of 3 to 30 for each")

// silence is how long the last node of a scenario takes to become master, in steps: the
// master-down time at priority 64.
const silence = patience + 3

// scenarios are those of each run. Their bounds are reached: with a smaller one a run fails.
func scenarios() []scenario {
	pair, three := []uint8{192, 64}, []uint8{192, 128, 64}
	hosts := mayKill | mayFreeze | mayPause | mayShutdown
	all := mayLose | mayDelay | hosts | mayCut | mayShift | mayFail | mayGiveUp
	sync := Config{AwaitSync: true}
	merge := Config{Merge: 2 * interval}
	both := Config{AwaitSync: true, Merge: 2 * interval, PreemptDelay: interval}
	return []scenario{
		{name: "two, messages", priorities: pair, may: mayLose | mayDelay, faults: 5, two: 4, none: silence, becomes: 2},
		{name: "two, hosts", priorities: pair, may: hosts, faults: 2, two: 2, none: silence, becomes: 2},
		{name: "two, processes", priorities: []uint8{192, 192}, may: mayKill | mayPause | mayShutdown, faults: 2, two: 1, none: silence - 2, becomes: 2},
		{name: "two, tie", priorities: []uint8{192, 192}, may: mayLose | mayDelay | mayKill | mayFreeze, faults: 2, two: 4, none: silence - 1, becomes: 2},
		{name: "two, sync", priorities: pair, may: mayLose | mayKill | mayFreeze, faults: 2, config: sync, two: 4, none: silence, becomes: 2},
		{name: "two, shift", priorities: pair, shift: three, may: mayLose | mayDelay | mayShift | mayFail, faults: 2, two: 4, none: silence + 1, becomes: 2},
		{name: "two, no preemption", priorities: pair, shift: three, may: mayLose | mayDelay | mayShift | mayKill, faults: 2, config: Config{NoPreempt: true}, two: 4, none: silence + 1, becomes: 2},
		{name: "two, hold", priorities: pair, may: mayLose | mayKill, faults: 2, config: Config{Hold: 5 * interval}, two: 4, none: 5*perCycle + 3, becomes: 2},
		{name: "two, cut", priorities: pair, may: mayCut | mayKill, faults: 2, two: 4, none: silence, becomes: 2},
		{name: "two, merge", priorities: pair, may: mayCut | mayKill | mayLose, faults: 2, config: merge, mergeAfter: 3, two: 4 + 2, none: silence, becomes: 2},
		{name: "two, merge without end", priorities: pair, may: mayCut | mayLose, faults: 2, config: merge, two: 4 + 8, none: silence, becomes: 2},
		{name: "two, planned moves", priorities: pair, may: mayGiveUp | mayDelay | mayLose, faults: 3, config: sync, two: 4 + 3, none: silence, becomes: 2},
		{name: "two, planned moves of a pair", priorities: pair, may: mayGiveUp | mayDelay | mayLose | mayCut, faults: 2, config: Config{AwaitSync: true, Pair: true}, two: 4 + 2, none: silence, becomes: 2},
		{name: "two, everything", priorities: pair, shift: pair, may: all &^ (mayPause | mayShutdown | mayFail), faults: 2, two: 6, none: silence + 1, becomes: 3},
		{name: "two, everything, merge", priorities: pair, shift: three, may: all, faults: 1, config: both, mergeAfter: 3, two: 4 + 2, none: silence, becomes: 2},
		{name: "three, messages", priorities: three, may: mayLose | mayDelay, faults: 2, two: 5, none: silence, becomes: 3},
		{name: "three, merge", priorities: three, may: mayCut, faults: 1, config: merge, mergeAfter: 3, two: 5 + 4, none: silence, becomes: 4},
		{name: "three, everything", priorities: three, shift: pair, may: all &^ (mayPause | mayShutdown | mayFail), faults: 1, two: 6, none: silence + 1, becomes: 4},
		{name: "three, tie", priorities: []uint8{128, 128, 128}, may: mayLose | mayDelay | mayKill, faults: 1, two: 2, none: silence - 1, becomes: 2},
	}
}

// widen makes the bounds of a scenario those of doc.go, for any number of faults.
func (s *scenario) widen() {
	others := int8(len(s.priorities) - 1)
	s.two = (2*perCycle + 1 + int8(s.config.Merge/quantum)) * others
	s.none = max(s.none, silence+2)
	s.becomes = others + 2
}

func TestExplore(t *testing.T) {
	total := 0
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			if *moreFaults > 0 {
				s.faults += *moreFaults
				s.widen()
			}
			e := newExplorer(t, s)
			start := time.Now()
			states, wrong := e.run(30_000_000) // some GB
			t.Logf("%d faults: %d states in %v; at most %+v", s.faults, states, time.Since(start).Round(time.Millisecond), e.most)
			if wrong != "" {
				t.Error(wrong)
			}
			if *moreFaults == 0 && (e.most.two < s.two || e.most.none < s.none || e.most.becomes < s.becomes) {
				t.Errorf("the bounds of the scenario are not reached: %d, %d, %d", s.two, s.none, s.becomes)
			}
			total += states
		})
	}
	t.Logf("%d states", total)
}
