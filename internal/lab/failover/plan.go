// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"imbang/internal/lab/topology"
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
	// Stored studies without families and methods are of IPv4 and masquerading.
	Families []topology.Family `json:"families,omitempty"`
	Methods  []string          `json:"methods,omitempty"`
	Trials   int               `json:"trials"` // of each cell
	Seed     uint64            `json:"seed"`   // of the order of cells, and of when faults happen

	Rate  float64       `json:"rate"`     // requests per second, each on a connection of its own
	Probe time.Duration `json:"probe_ns"` // between two connections of the probe
	Long  int           `json:"long"`     // long connections
	Idle  int           `json:"idle"`     // idle ones
	// OpenRate is how many long and idle connections are opened a second, until 100 ms before
	// the fault, and how many idle ones are used after it; 0, in stored studies: as many as
	// can be, until 500 ms before the fault.
	OpenRate float64 `json:"open_rate"`
	EachSide int     `json:"each_side"` // connections opened on each side of a partition
	// UpgradeTo is the file of another build of imbang, which fault upgrade changes to; "": to
	// the same one, so that the data plane stays.
	UpgradeTo string `json:"upgrade_to,omitempty"`
	Servers   int    `json:"servers"`
}

// DefaultPlan is the study.
func DefaultPlan() Plan {
	return Plan{
		Variants: slices.Clone(DefaultVariants), Faults: FaultNames(), Trials: 30,
		Families: []topology.Family{plain.Family}, Methods: []string{plain.Method},
		Rate: 200, Probe: 10 * time.Millisecond, Long: 20, Idle: 200, OpenRate: 1000, EachSide: 100, Servers: 2,
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
	for i, name := range p.Methods {
		if !slices.Contains(Methods, name) {
			return fmt.Errorf("unknown method %q: there are %s", name, strings.Join(Methods, ", "))
		}
		if slices.Contains(p.Methods[:i], name) {
			return fmt.Errorf("method %s is listed twice", name)
		}
	}
	for i, f := range p.Families {
		if !slices.Contains(topology.Families, f) || slices.Contains(p.Families[:i], f) {
			return fmt.Errorf("families %v: want ipv4, ipv6, or both", p.Families)
		}
	}
	switch {
	case len(p.Families) == 0 || len(p.Methods) == 0:
		return fmt.Errorf("name at least one family and one method")
	case len(p.Variants) == 0 || len(p.Faults) == 0:
		return fmt.Errorf("name at least one variant and one fault")
	case len(p.Cells()) == 0:
		return fmt.Errorf("nothing to measure: keepalived has no command for planned moves, and is not upgraded; fault resign ends it. The machines of linux have no daemon of imbang")
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
	case p.EachSide < 0 || p.EachSide > 10000:
		return fmt.Errorf("%d connections on each side of a partition: at most 10000", p.EachSide)
	case p.OpenRate != 0 && p.OpenRate < 10 || p.OpenRate > 100000:
		return fmt.Errorf("%g connections opened a second: from 10 to 100000", p.OpenRate)
	case p.UpgradeTo != "" && !slices.Contains(p.Faults, upgrade):
		return fmt.Errorf("an upgrade to %s, and fault %s is not among the faults", p.UpgradeTo, upgrade)
	case p.sides() && p.Servers < 2:
		return fmt.Errorf("%d servers: a partition has one on each side; leave fault %s out", p.Servers, partition)
	}
	return nil
}

// sides reports whether a fault of the plan has networks of two sides.
func (p Plan) sides() bool { return slices.Contains(p.Faults, partition) }

// uses reports whether a method of the plan has servers that reply directly, or others.
func (p Plan) uses(directly bool) bool {
	return slices.ContainsFunc(p.Methods, func(m string) bool { return Setting{Method: m}.replyDirectly() == directly })
}

// Cell is a variant with a fault, in a setting.
type Cell struct {
	Variant string `json:"variant"`
	Fault   string `json:"fault"`
	Setting
}

func (c Cell) String() string { return c.Variant + ", " + c.Fault + ", " + c.Setting.String() }

// Cells lists those that can be measured.
func (p Plan) Cells() (list []Cell) {
	for _, name := range p.Faults {
		fault, err := faultOf(name)
		if err != nil {
			continue
		}
		for _, variant := range p.Variants {
			if v, err := ParseVariant(variant); err != nil || !fault.concerns(v) {
				continue
			}
			for _, family := range p.Families {
				for _, method := range p.Methods {
					list = append(list, Cell{variant, name, Setting{family, method}})
				}
			}
		}
	}
	return list
}

// random are the random choices of a block, counted from 1.
func (p Plan) random(block int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(block))) }

// place is what cells share that are measured on one site: networks, and the kind of the
// directors.
type place struct {
	Setting
	machines bool
}

func (c Cell) place() place { return place{c.Setting, onMachines(c.Variant)} }

// Block is the order of the cells in a block: random, but those of a place come together,
// as another one has other networks.
func (p Plan) Block(block int) []Cell {
	list, random := p.Cells(), p.random(block)
	random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	rank := map[place]int{}
	for _, c := range list {
		if _, has := rank[c.place()]; !has {
			rank[c.place()] = len(rank)
		}
	}
	slices.SortStableFunc(list, func(a, b Cell) int { return rank[a.place()] - rank[b.place()] })
	return list
}

// only is the plan for one setting.
func (p Plan) only(s Setting) Plan {
	p.Families, p.Methods = []topology.Family{s.Family}, []string{s.Method}
	return p
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

// lead is how long everything runs before the fault, and youngest how old connections are
// then at least.
const (
	lead     = 500 * time.Millisecond
	youngest = 100 * time.Millisecond
	slack    = 30 * time.Millisecond // of opening the last ones
)

// late is how many of the connections are opened while everything else runs, in half of the
// time that there is.
func (p Plan) late() int { return min(p.Idle, int(p.OpenRate*((lead-youngest)/2).Seconds())) }

// opening is how long it takes to open connections, or to use them.
func (p Plan) opening(n int) time.Duration {
	if p.OpenRate == 0 {
		return 0
	}
	return time.Duration(float64(n) / p.OpenRate * float64(time.Second))
}

// window is how long a trial of a cell measures, from the fault.
func (p Plan) window(f Fault, v Variant) time.Duration {
	d := f.within(v) + settle
	if f.meanwhile != nil {
		d += p.opening(2 * p.EachSide)
	}
	return d
}

// setup is about what a trial takes beside: networks and directors that start and end.
const setup = 6 * time.Second

// Expected is about how long a trial takes.
func (p Plan) Expected(c Cell) time.Duration {
	f, err := faultOf(c.Fault)
	v, err2 := ParseVariant(c.Variant)
	if err != nil || err2 != nil {
		return 0
	}
	d := setup + p.opening(p.Long+p.Idle) + lead + p.window(f, v) + p.opening(p.Idle)
	if f.prepare != nil {
		d += takeover(v)
	}
	return d
}
