// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"imbang/internal/director"
	"imbang/internal/director/testrun"
	"imbang/internal/host"
	"imbang/internal/lab/stats"
)

// PacketsConfig says what the data plane's programs are measured with.
type PacketsConfig struct {
	Measures   []string // of PacketMeasures
	Schedulers []string // of the measure "new"
	Servers    []int    // likewise, of the service
	Flows      []int    // of the measure "established": connections in rotation, powers of two
	Packets    int      // of a round
	Rounds     int      // 0: as many as are usual for a measure
	Most       int      // connections, addresses, servers and services of the other measures at most; 0: no bound
	Against    string   // path of another build's imbang-lab, measured in the same rounds
	Progress   func(done, all int)
}

// rounds are those of a measure.
func (c PacketsConfig) rounds(usual int) int {
	if c.Rounds > 0 {
		return c.Rounds
	}
	return usual
}

// PacketsResult is the time of the programs alone, without devices, drivers
// and sockets: medians and ranges over rounds that take turns with rounds of
// making the same packets for nobody, whose time is taken off.
type PacketsResult struct {
	Packets     int           `json:"packets_per_round"`
	Making      Cost          `json:"making_ns"` // of a packet, taken off
	Established []PacketCost  `json:"established"`
	New         []PacketCost  `json:"new"`
	Traffic     []TrafficCost `json:"traffic"`
	Other       *PacketsBuild `json:"other_build,omitempty"`
	Missing     []string      `json:"missing,omitempty"` // measures that were left out, and why
	Targets     []Target      `json:"targets,omitempty"`
}

// conclude compares what was measured with the target: wlc has to look
// at all servers, and may not take long for many.
func (r *PacketsResult) conclude() {
	cost := map[int]Cost{}
	for _, c := range r.New {
		if c.Scheduler == "wlc" {
			cost[c.Servers] = c.NS
		}
	}
	few, many := cost[3], cost[1000]
	if few.N == 0 || many.N == 0 {
		return
	}
	ratio := stats.Summary{N: many.N, Median: many.Median / few.Median, Min: many.Min / few.Max, Max: many.Max / few.Min}
	r.Targets = append(r.Targets, atMost("new connection by wlc, 1000 servers over 3", "", 2, ratio))
}

// Cost is in nanoseconds a packet.
type Cost = stats.Summary

// PacketCost is one case.
type PacketCost struct {
	Family    string `json:"family"`
	Path      string `json:"path"` // fast; whole: what packets meet that the fast one leaves; or xdp
	Scheduler string `json:"scheduler"`
	Servers   int    `json:"servers"`
	Flows     int    `json:"flows,omitempty"` // 0: each packet is a new connection
	NS        Cost   `json:"ns"`
}

// packets is a measurement in progress.
type packets struct {
	PacketsConfig
	ns     *host.Namespace
	making []float64
	result PacketsResult
	step   func()
}

// fewRounds are those of the measures of few addresses. A new connection's table has room
// for those of all rounds.
const fewRounds = 5

// packetsFirst is the client address of few: 10.10.0.2.
const packetsFirst = packetsClients + 2

// Packets carries it out in namespaces of its own.
func Packets(ctx context.Context, c PacketsConfig) (_ *PacketsResult, err error) {
	done := 0
	step := func() {
		if done++; c.Progress != nil {
			c.Progress(done, c.cases()+c.steps())
		}
	}
	result := &PacketsResult{Packets: c.Packets, Established: []PacketCost{}, New: []PacketCost{}, Traffic: []TrafficCost{}}
	var making []float64
	if c.cases() > 0 {
		few := c
		few.Rounds = c.rounds(fewRounds)
		err := inPacketsNetwork(few, func(p *packets) error {
			p.step, p.result = step, *result
			if err := p.all(ctx); err != nil {
				return err
			}
			p.result.conclude()
			*result, making = p.result, p.making
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	made, err := c.measureTraffic(ctx, result, step)
	if err != nil {
		return nil, err
	}
	result.Making = stats.Summarize(append(making, made...))
	return result, nil
}

// inPacketsNetwork calls measure in a namespace that has devices and routes to
// clients and servers, and nothing at their ends.
func inPacketsNetwork(c PacketsConfig, measure func(*packets) error) (err error) {
	name, err := newRun()
	if err != nil {
		return err
	}
	p := &packets{PacketsConfig: c, step: func() {}}
	if p.ns, err = host.NewNamespace(name.Name("dir")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.ns.Close()) }()
	outside, err := host.NewNamespace(name.Name("out"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outside.Close()) }()
	if err := benchNetworks[4].connect(p.ns, outside); err != nil {
		return err
	}
	return p.ns.Do(func() error { return measure(p) })
}

// The ways that packets are sent, of those established and of new ones.
var (
	established = []testrun.Way{testrun.FromHere, testrun.WholeOnly, testrun.InXDP}
	opening     = []testrun.Way{testrun.FromHere, testrun.InXDP}
	paths       = map[testrun.Way]string{testrun.FromHere: "fast", testrun.WholeOnly: "whole", testrun.InXDP: "xdp"}
)

// cases counts those of the measures of few addresses.
func (c PacketsConfig) cases() (n int) {
	if slices.Contains(c.Measures, fewEstablished) {
		n += len(established) * len(c.Flows)
	}
	if slices.Contains(c.Measures, fewNew) {
		n += len(opening) * len(c.Schedulers) * len(c.Servers)
	}
	return n
}

func (p *packets) all(ctx context.Context) error {
	if slices.Contains(p.Measures, fewEstablished) {
		if err := p.measureEstablished(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(p.Measures, fewNew) {
		return p.measureNew(ctx)
	}
	return nil
}

func (p *packets) measureEstablished(ctx context.Context) error {
	for _, flows := range p.Flows {
		for _, way := range established {
			cost, err := p.one(ctx, PacketCost{Scheduler: "rr", Servers: 3, Flows: flows}, way)
			if err != nil {
				return err
			}
			p.result.Established = append(p.result.Established, cost)
		}
	}
	return nil
}

func (p *packets) measureNew(ctx context.Context) error {
	for _, scheduler := range p.Schedulers {
		for _, servers := range p.Servers {
			for _, way := range opening {
				cost, err := p.one(ctx, PacketCost{Scheduler: scheduler, Servers: servers}, way)
				if err != nil {
					return err
				}
				p.result.New = append(p.result.New, cost)
			}
		}
	}
	return nil
}

// one measures a case with a director of its own.
func (p *packets) one(ctx context.Context, c PacketCost, way testrun.Way) (_ PacketCost, err error) {
	c.Family, c.Path = ipv4, paths[way]
	nowhere := testrun.Nowhere
	if way == testrun.InXDP {
		nowhere = testrun.NowhereXDP
	}
	var costs []float64
	err = p.loop(ctx, c, p.Rounds, func(loop *testrun.PacketLoop) error {
		for range p.Rounds {
			making, err := p.round(loop, nowhere)
			if err != nil {
				return err
			}
			through, err := p.round(loop, way)
			if err != nil {
				return err
			}
			p.making, costs = append(p.making, making), append(costs, through-making)
		}
		return nil
	})
	if err != nil {
		return c, err
	}
	c.NS = stats.Summarize(costs)
	p.step()
	return c, nil
}

// loop loads a director, prepares the packets of a case, and has them measured, in
// as many rounds.
func (p *packets) loop(ctx context.Context, c PacketCost, rounds int, measure func(*testrun.PacketLoop) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	opened := c.Flows
	if opened == 0 {
		opened = p.Packets * rounds
	}
	d, err := p.director(c, opened)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(), director.Detach(true)) }()
	loop, err := testrun.NewPacketLoop(d, benchClientDev, benchServerDev)
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := p.prepare(loop, c.Flows); err != nil {
		return err
	}
	return measure(loop)
}

// prepare opens the connections whose packets are to be measured, or lets each
// packet be the first of one.
func (p *packets) prepare(loop *testrun.PacketLoop, flows int) error {
	n := benchNetworks[4]
	from, to := netip.AddrPortFrom(n.firstAddress(packetsFirst), 1024), netip.AddrPortFrom(n.service.Addr(), packetsPort)
	if flows == 0 {
		return loop.Scene(packetsFrame(from, to, flagSYN), packetsFirst, 1<<30)
	}
	for _, flags := range []byte{flagSYN, flagACK} {
		if err := loop.Scene(packetsFrame(from, to, flags), packetsFirst, flows); err != nil {
			return err
		}
		if _, fate, err := loop.Times(flows, testrun.FromHere); err != nil {
			return err
		} else if fate != testrun.Forwarded {
			return fmt.Errorf("the packets that open %d connections are not forwarded (verdict %d): %v", flows, fate, loop.Why())
		}
	}
	return nil
}

// round runs the packets once: nanoseconds each.
func (p *packets) round(loop *testrun.PacketLoop, way testrun.Way) (float64, error) {
	each, fate, err := loop.Times(p.Packets, way)
	if err == nil && paths[way] != "" && fate != testrun.Forwarded {
		err = fmt.Errorf("the last of %d packets was not forwarded (verdict %d): %s", p.Packets, fate, loop.Why())
	}
	return float64(each.Nanoseconds()), err
}

// director loads one with a service.
func (p *packets) director(c PacketCost, connections int) (*director.Director, error) {
	const room = 2 // so that the hash tables are no fuller than a half
	return loadPackets(p.ns, packetCase{
		PacketKind:  PacketKind{Family: ipv4, Forward: masquerade, Scheduler: c.Scheduler, Services: 1, Servers: c.Servers},
		Connections: max(leastTable, room*connections),
	})
}
