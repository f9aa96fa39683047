// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"

	"imbang/internal/lab/measure"
	"imbang/internal/lab/stats"
)

// FloodConfig says what to send through which directors.
type FloodConfig struct {
	Competitors []string // of FloodCompetitors
	Traffic     []string // of FloodTraffic
	Schedulers  []string
	Servers     []int // real servers of the service
	Flows       int   // connections that are opened
	Packets     int   // of established connections, in a sample
	Rounds      int
	// LoadOnce: imbang is loaded once and goes from table to table; else
	// every sample has a fresh one.
	LoadOnce   bool
	Note       string // kept with the result
	Executable string // path of imbang
	Against    string // that of another build, which takes part beside this one
	Progress   func(done, all int)
}

// FloodResult is what directors cost, packet by packet, devices and the
// kernel's own work included.
type FloodResult struct {
	Note        string        `json:"note,omitempty"`
	Against     string        `json:"against,omitempty"` // path of the other build
	Machine     Machine       `json:"machine"`
	Limits      FloodLimits   `json:"limits"`
	Flows       int           `json:"flows"`
	Packets     int           `json:"packets_per_sample"`
	FrameBytes  int           `json:"frame_bytes"`
	Costs       []FloodCost   `json:"costs"`
	Missing     []string      `json:"missing,omitempty"` // who was left out, and why
	Calibration stats.Summary `json:"calibration_ns"`    // a fixed loop, once a round
	Targets     []Target      `json:"targets,omitempty"`
}

// FloodCost is what a packet costs with one director, table and kind of
// traffic.
type FloodCost struct {
	Competitor string `json:"competitor"`
	Scheduler  string `json:"scheduler"`
	Servers    int    `json:"servers"`
	Traffic    string `json:"traffic"`          // of FloodTraffic
	Flows      int    `json:"flows"`            // that take turns; of new ones, how many were opened
	Clients    int    `json:"client_addresses"` // of those flows
	NS         Cost   `json:"ns"`               // of CPU time for each packet sent
	// Own is the director's own cost: what is more than with Base, which drops
	// the same packets on the director's device, in the same round.
	Own  Cost   `json:"own_ns"`
	Base string `json:"base"`
	// Over is the ratio to others, round by round, of what is more than with a
	// base that is the same for both: noop-xdp if it is the Base of one of them,
	// since a socket buffer, which only the other one needs, is its own cost;
	// else noop, and the ratio is that of Own.
	Over map[string]stats.Summary `json:"over,omitempty"`
	Sent uint64                   `json:"sent"`
	// Arrived at the servers. A director that loses packets saves the work of
	// transmitting them: its cost is that of each packet sent all the same.
	Arrived uint64 `json:"arrived"`
}

// The kinds of traffic. Those of the first three, the earlier series, are of 2^15 client
// addresses and all short; the others are of 2^14.
const (
	oneFlow   = "one"
	manyFlows = "many"
	newFlows  = "new"

	floodRequests = "requests"
	floodOpening  = "opening"
	floodMix      = "mix"
	floodReplies  = "replies"
)

var fewTraffics = []string{oneFlow, manyFlows, newFlows}

var traffics = []string{oneFlow, manyFlows, newFlows, floodRequests, floodOpening, floodMix, floodReplies}

// FloodTraffic lists them.
func FloodTraffic() []string { return slices.Clone(traffics) }

// floodKind is what is sent of a kind of traffic: n packets of so many flows in rotation,
// from the first one on.
type floodKind struct {
	name            string
	flows, first, n int
	large           int // bytes of one frame of ten
}

// floodPart is what a sample has, one kind after the other.
type floodPart struct {
	bits    int // of clients' addresses
	replies bool
	kinds   []floodKind
}

// largeFrame is the longest that Ethernet has.
const largeFrame = 1514

// parts are those with traffic that was asked for.
func (f *flood) parts() (list []floodPart) {
	opened, all := f.Flows-1, f.Flows
	for _, p := range []floodPart{
		{bits: clientBits, kinds: []floodKind{{oneFlow, 1, 0, f.Packets, 0}, {newFlows, all, 1, opened, 0}, {manyFlows, all, 0, f.Packets, 0}}},
		{bits: manyBits, kinds: []floodKind{{floodOpening, all, 1, opened, 0}, {floodRequests, all, 0, f.Packets, 0}, {floodMix, all, 0, f.Packets, largeFrame}}},
		{bits: manyBits, replies: true, kinds: []floodKind{{floodReplies, all, 0, f.Packets, 0}}},
	} {
		if slices.ContainsFunc(p.kinds, func(k floodKind) bool { return slices.Contains(f.Traffic, k.name) }) {
			list = append(list, p)
		}
	}
	return list
}

// manyBits is the binary logarithm of the number of client addresses.
const manyBits = 14

// has reports whether a part has such traffic.
func (p floodPart) has(traffic string) bool {
	return slices.ContainsFunc(p.kinds, func(k floodKind) bool { return k.name == traffic })
}

// settings are the tables that a part is sampled with. Which server a connection has is
// known where there is one, and a reply comes from it.
func (f *flood) settings(p floodPart) (all []setting) {
	for _, s := range f.Schedulers {
		if p.replies {
			all = append(all, setting{s, 1})
			continue
		}
		for _, n := range f.Servers {
			all = append(all, setting{s, n})
		}
	}
	return all
}

// setting is a table of one service.
type setting struct {
	scheduler string
	servers   int
}

// measuredFlood is what one sample found of one kind of traffic.
type measuredFlood struct {
	ns            float64 // a packet
	sent, arrived uint64
}

// flood is a run in progress.
type flood struct {
	FloodConfig
	network benchNetwork
	watch   stopwatch
	loaded  map[string]*stage             // of LoadOnce, by competitor
	samples map[floodCell][]measuredFlood // round by round
	result  FloodResult
}

// floodCell is what is sampled once a round.
type floodCell struct {
	setting
	competitor, traffic string
}

// Flood carries the comparison out: in each round, for every table, all
// directors in random order, each of them fresh. Nothing is left behind.
func Flood(ctx context.Context, c FloodConfig) (_ *FloodResult, err error) {
	f := &flood{FloodConfig: c, network: benchNetworks[4], loaded: map[string]*stage{}, samples: map[floodCell][]measuredFlood{}}
	f.result = FloodResult{Note: c.Note, Against: c.Against, Machine: thisMachine(), Flows: c.Flows, Packets: c.Packets, FrameBytes: len(f.datagrams(f.network.service).frame(0))}
	if f.watch, err = newStopwatch(); err != nil {
		return nil, err
	}
	competitors, err := f.present(ctx)
	if err != nil {
		return nil, err
	}
	restore, err := f.widen(competitors)
	if err != nil {
		return nil, err
	}
	defer restore()
	// Collecting garbage in the middle of a sample would be a part of it.
	defer func() {
		for _, st := range f.loaded {
			err = errors.Join(err, st.close())
		}
	}()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := f.rounds(ctx, competitors); err != nil {
		return nil, err
	}
	f.conclude(competitors)
	return &f.result, nil
}

// floodSample is what a director is made ready for, and measured.
type floodSample struct {
	part floodPart
	setting
}

// planned are the samples of a round with each competitor.
func (f *flood) planned() (list []floodSample) {
	for _, p := range f.parts() {
		for _, s := range f.settings(p) {
			list = append(list, floodSample{p, s})
		}
	}
	return list
}

func (f *flood) rounds(ctx context.Context, competitors []competitor) error {
	var calibrations []float64
	planned := f.planned()
	done, all := 0, f.Rounds*len(planned)*len(competitors)
	for range f.Rounds {
		calibrations = append(calibrations, float64(measure.Calibrate().Nanoseconds()))
		for _, s := range shuffled(planned) {
			for _, c := range shuffled(competitors) {
				if done++; c.has(s.scheduler) {
					if err := f.sample(ctx, s, c); err != nil {
						return fmt.Errorf("%s, %s with %d servers: %w", c.name, s.scheduler, s.servers, err)
					}
				}
				if f.Progress != nil {
					f.Progress(done, all)
				}
			}
		}
	}
	f.result.Calibration = stats.Summarize(calibrations)
	return nil
}

func shuffled[T any](list []T) []T {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
