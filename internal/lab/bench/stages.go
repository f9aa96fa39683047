// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"

	"imbang/internal/bpfobj/lbstages"
	"imbang/internal/director/testrun"
	"imbang/internal/lab/stats"
)

// StagesConfig says which packets are followed through the data plane.
type StagesConfig struct {
	Flows    int // established connections in rotation, a power of two
	Packets  int // of a round
	Rounds   int
	Note     string // kept with the result
	Progress func(done, all int)
}

// StagesResult is where the time of packets goes, stage by stage of their path
// (bpf/stage.h), within the data plane's programs.
type StagesResult struct {
	Note    string      `json:"note,omitempty"`
	Machine Machine     `json:"machine"`
	Flows   int         `json:"flows"`
	Packets int         `json:"packets_per_round"`
	Costs   []StageCost `json:"costs"`
}

// StageCost is what one stage costs a packet. The stage "program" is the product's
// whole program with the same packets, without marks: what the stages' sum
// is more than that, marks cost.
type StageCost struct {
	Path    string  `json:"path"`    // tc or xdp
	Traffic string  `json:"traffic"` // one, many, new: as in FloodCost
	Stage   string  `json:"stage"`
	NS      Cost    `json:"ns"`
	Lookups float64 `json:"map_lookups"` // of elements, of arrays too
	Changes float64 `json:"map_changes"` // elements inserted or deleted
}

// wholeProgram is the name of the stage that is all of them.
const wholeProgram = "program"

var stagePaths = []struct {
	name string
	way  testrun.Way
}{{"tc", testrun.FromHere}, {"xdp", testrun.InXDP}}

// Stages runs established and new connections' packets through the variant of the
// data plane that measures its stages: once with a clock, once counting the calls
// of maps, and once through the product itself.
func Stages(ctx context.Context, c StagesConfig) (_ *StagesResult, err error) {
	r := &StagesResult{Note: c.Note, Machine: thisMachine(), Flows: c.Flows, Packets: c.Packets}
	done := 0
	err = inPacketsNetwork(PacketsConfig{Packets: c.Packets, Rounds: c.Rounds}, func(p *packets) error {
		for _, path := range stagePaths {
			for _, traffic := range fewTraffics {
				costs, err := p.stages(ctx, path.way, map[string]int{oneFlow: 1, manyFlows: c.Flows}[traffic])
				if err != nil {
					return err
				}
				for _, cost := range costs {
					cost.Path, cost.Traffic = path.name, traffic
					r.Costs = append(r.Costs, cost)
				}
				if done++; c.Progress != nil {
					c.Progress(done, len(stagePaths)*len(fewTraffics))
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// stages are the costs of one kind of packets; 0 flows: each opens a connection.
func (p *packets) stages(ctx context.Context, way testrun.Way, flows int) (costs []StageCost, err error) {
	kind := PacketCost{Scheduler: "rr", Servers: 3, Flows: flows}
	product, err := p.one(ctx, kind, way)
	if err != nil {
		return nil, err
	}
	timed, err := p.marked(ctx, kind, way, false, p.Rounds)
	if err != nil {
		return nil, err
	}
	counted, err := p.marked(ctx, kind, way, true, 1)
	if err != nil {
		return nil, err
	}
	sum := StageCost{Stage: wholeProgram, NS: product.NS}
	for i, name := range lbstages.Names[1:] { // the first is empty
		cost := stageCost(name, lbstages.LbStage(i+1), timed, counted[0])
		sum.Lookups, sum.Changes = sum.Lookups+cost.Lookups, sum.Changes+cost.Changes
		costs = append(costs, cost)
	}
	return append(costs, sum), nil
}

// stageCost takes one stage out of rounds that were timed and one that was counted:
// a packet's share, without the cost of marks.
func stageCost(name string, stage lbstages.LbStage, timed []lbstages.LbStageCosts, counted lbstages.LbStageCosts) StageCost {
	var ns []float64
	for _, round := range timed {
		empty, of, packets := round.Of[lbstages.LbStageSTAGE_EMPTY], round.Of[stage], packetsOf(round)
		ns = append(ns, (float64(of.Ns)-float64(of.Ends)*float64(empty.Ns)/packets)/packets)
	}
	of, packets := counted.Of[stage], packetsOf(counted)
	return StageCost{Stage: name, NS: stats.Summarize(ns), Lookups: float64(of.Lookups) / packets, Changes: float64(of.Changes) / packets}
}

// packetsOf is how many packets a round had: each begins with an empty stage.
func packetsOf(round lbstages.LbStageCosts) float64 {
	return float64(max(round.Of[lbstages.LbStageSTAGE_EMPTY].Ends, 1))
}

// marked runs packets through the variant: the costs of each of n rounds. One more
// before them fills caches.
func (p *packets) marked(ctx context.Context, c PacketCost, way testrun.Way, counts bool, n int) (rounds []lbstages.LbStageCosts, err error) {
	defer testrun.MeasureStages(counts)()
	err = p.loop(ctx, c, 1+n, func(loop *testrun.PacketLoop) error {
		costs, err := loop.Stages(way)
		if err != nil {
			return err
		}
		rounds, err = p.stageRounds(loop, way, costs, 1+n)
		return errors.Join(err, costs.Close())
	})
	if err != nil {
		return nil, err
	}
	return rounds[1:], nil
}

// stageRounds runs the packets n times, and reads what each round cost.
func (p *packets) stageRounds(loop *testrun.PacketLoop, way testrun.Way, costs testrun.StageCosts, n int) (rounds []lbstages.LbStageCosts, err error) {
	for range n {
		if err := costs.Clear(); err != nil {
			return nil, err
		}
		if _, err := p.round(loop, way); err != nil {
			return nil, err
		}
		round, err := costs.Read()
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, round)
	}
	return rounds, nil
}
