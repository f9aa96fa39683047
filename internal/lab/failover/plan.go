// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// pingInterval is the published study's.
const pingInterval = 5 * time.Millisecond

// Published is the outage of the published study's balancer [ms], by pings of the same
// interval.
const Published = 9622.0

// Plan is what is to be measured.
type Plan struct {
	Variants []string `json:"variants"`
	Faults   []string `json:"faults"`
	Trials   int      `json:"trials"` // of each cell
	Seed     uint64   `json:"seed"`   // of the order of cells, and of when faults happen

	Rate    float64       `json:"rate"`     // requests per second, each on a connection of its own
	Probe   time.Duration `json:"probe_ns"` // between two connections of the probe
	Long    int           `json:"long"`     // long connections
	Idle    int           `json:"idle"`     // idle ones
	Servers int           `json:"servers"`
}

// DefaultPlan is the study.
func DefaultPlan() Plan {
	return Plan{
		Variants: slices.Clone(DefaultVariants), Faults: FaultNames(), Trials: 30,
		Rate: 200, Probe: 10 * time.Millisecond, Long: 20, Idle: 200, Servers: 2,
	}
}

// Validate reports the first thing that cannot be run, and its remedy.
func (p Plan) Validate() error {
	for i, name := range p.Variants {
		if _, err := ParseVariant(name); err != nil {
			return err
		}
		if slices.Contains(p.Variants[:i], name) {
			return fmt.Errorf("variant %s is listed twice", name)
		}
	}
	for i, name := range p.Faults {
		if _, err := faultOf(name); err != nil {
			return err
		}
		if slices.Contains(p.Faults[:i], name) {
			return fmt.Errorf("fault %s is listed twice", name)
		}
	}
	switch {
	case len(p.Variants) == 0 || len(p.Faults) == 0:
		return fmt.Errorf("name at least one variant and one fault")
	case len(p.Cells()) == 0:
		return fmt.Errorf("nothing to measure: keepalived has no command for planned moves; fault resign ends it")
	case p.Trials < 1:
		return fmt.Errorf("%d trials: at least 1", p.Trials)
	case p.Rate < 1 || p.Rate > 100000:
		return fmt.Errorf("a rate of %g requests/s: from 1 to 100000", p.Rate)
	case p.Probe < time.Millisecond || p.Probe > time.Second:
		return fmt.Errorf("a probe each %v: from 1ms to 1s", p.Probe)
	case p.Servers < 1 || p.Servers > 100:
		return fmt.Errorf("%d servers: from 1 to 100", p.Servers)
	case p.Long < 0 || p.Long > 1000 || p.Idle < 0 || p.Idle > 20000:
		return fmt.Errorf("%d long and %d idle connections: at most 1000 and 20000", p.Long, p.Idle)
	}
	return nil
}

// Cell is a variant with a fault.
type Cell struct {
	Variant string `json:"variant"`
	Fault   string `json:"fault"`
}

func (c Cell) String() string { return c.Variant + ", " + c.Fault }

// Cells lists those that can be measured: keepalived has no command for planned moves.
func (p Plan) Cells() (list []Cell) {
	for _, fault := range p.Faults {
		for _, variant := range p.Variants {
			if v, err := ParseVariant(variant); err == nil && !(v.Process == keepalivedProcess && isPlanned(fault)) {
				list = append(list, Cell{variant, fault})
			}
		}
	}
	return list
}

// random are the random choices of a block, counted from 1.
func (p Plan) random(block int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(block))) }

// Block is the order of the cells in a block.
func (p Plan) Block(block int) []Cell {
	list := p.Cells()
	p.random(block).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// phase is when within an interval a fault happens: at any time, as advertisements know
// nothing of it. It follows from the seed, the block and the cell.
func (p Plan) phase(block int, c Cell) time.Duration {
	v, err := ParseVariant(c.Variant)
	if err != nil {
		return 0
	}
	r := p.random(block)
	r.Uint64()
	at := slices.Index(p.Cells(), c)
	for range at {
		r.Uint64()
	}
	return time.Duration(r.Int64N(int64(v.Interval)))
}

// lead is how long everything runs before the fault: connections are at least 100 ms old.
const lead = 500 * time.Millisecond

// window is how long a trial of a cell measures, from the fault.
func window(f Fault, v Variant) time.Duration { return f.within(v) + settle }

// setup is about what a trial takes beside: networks and directors that start and end.
const setup = 6 * time.Second

// Expected is about how long a trial takes.
func Expected(c Cell) time.Duration {
	f, err := faultOf(c.Fault)
	v, err2 := ParseVariant(c.Variant)
	if err != nil || err2 != nil {
		return 0
	}
	d := setup + lead + window(f, v)
	if f.prepare != nil {
		d += takeover(v)
	}
	return d
}
