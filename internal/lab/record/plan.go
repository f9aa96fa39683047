// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Plan is the study after the command line has had its say. A block holds
// every competitor under every condition.
type Plan struct {
	Competitors []Competitor `json:"competitors"`
	Conditions  []Condition  `json:"conditions"`
	LeftOut     []string     `json:"left_out,omitempty"` // engines that the kernel does not have

	Repeats int           `json:"repeats"`             // blocks, at least
	Most    int           `json:"most,omitempty"`      // blocks, at most
	Until   float64       `json:"until,omitempty"`     // relative half width of intervals that ends the run
	Budget  time.Duration `json:"budget_ns,omitempty"` // of time for blocks beyond Repeats
	Cells   int           `json:"cells"`               // of one block

	// Capacity is what rates of the conditions are fractions of, nil where the
	// study gives rates itself or no pilot has run yet; Pilot is what the pilot
	// measured at the levels of the study.
	Capacity *Capacity `json:"capacity,omitempty"`
	Pilot    *Pilot    `json:"pilot,omitempty"`

	Replay        *Replay       `json:"replay,omitempty"`
	Connections   int           `json:"connections,omitempty"` // of a cell of an open loop
	Duration      time.Duration `json:"duration_ns,omitempty"` // of a cell, where no number is given
	PerConnection int           `json:"requests_per_connection"`
	Warmup        time.Duration `json:"warmup_ns"`
	Timeout       time.Duration `json:"timeout_ns"`
	Seed          uint64        `json:"seed"`
	Quick         bool          `json:"quick"`
}

// Competitor is one of those that are compared.
type Competitor struct {
	Name      string `json:"competitor"` // of tables, unique in a run
	Engine    string `json:"engine"`
	Scheduler string `json:"scheduler,omitempty"` // empty for an engine that does not balance
	Weights   string `json:"weights"`             // the name of a set
	Servers   int    `json:"servers"`             // how many take part
}

// Condition is what all competitors meet alike.
type Condition struct {
	Family   string  `json:"family"`
	Call     string  `json:"call"`
	Tool     string  `json:"tool"`
	Arrivals string  `json:"arrivals,omitempty"` // of an open loop
	Rate     float64 `json:"rate,omitempty"`     // of an open loop: asked, connections per second
	Fraction float64 `json:"fraction,omitempty"` // Rate is this fraction of the plan's Capacity
	// Published is the level of the published tables that stands beside this
	// one, where it is not Level.
	Published float64 `json:"published_level,omitempty"`
	Speed     float64 `json:"speed,omitempty"`    // of a replay: this many times as fast as logged
	Users     int     `json:"users,omitempty"`    // of a closed loop
	Requests  int     `json:"requests,omitempty"` // of a closed loop, a cell; 0: for a time
	// Connections is the length of an open loop where it is not the plan's.
	Connections int  `json:"connections,omitempty"`
	KeepAlive   bool `json:"keep_alive,omitempty"` // connections carry requests without a limit
}

// PublishedLevel is the level at which published tables hold figures for this
// condition.
func (c Condition) PublishedLevel() float64 { return cmp.Or(c.Published, c.Level()) }

// Closed reports whether users wait for replies.
func (c Condition) Closed() bool { return c.Users > 0 }

// Level is what the rows of a table count: the rate, the requests, or the
// users.
func (c Condition) Level() float64 {
	switch {
	case !c.Closed():
		return c.Rate
	case c.Requests > 0:
		return float64(c.Requests)
	}
	return float64(c.Users)
}

// LevelUnit is the unit of Level.
func (c Condition) LevelUnit() string {
	switch {
	case !c.Closed():
		return "conn/s"
	case c.Requests > 0:
		return "requests"
	}
	return "users"
}

// Group is the condition without its level: the conditions of one table.
func (c Condition) Group() Condition {
	switch {
	case !c.Closed():
		c.Rate, c.Fraction, c.Published, c.Speed = 0, 0, 0, 0
	case c.Requests > 0:
		c.Requests = 1 // whatever it is, there is one
	default:
		c.Users = 1
	}
	return c
}

// usual is what messages leave out of a condition.
var usual = []string{"ipv4", "page", "logged", "built-in", "constant", ""}

// String names the condition in messages.
func (c Condition) String() string {
	var words []string
	switch {
	case c.Fraction > 0 && c.Rate == 0: // before the pilot
		words = append(words, fmt.Sprintf("%g %% of capacity", 100*c.Fraction))
	case c.Fraction > 0:
		words = append(words, fmt.Sprintf("%g %% of capacity (%g/s)", 100*c.Fraction, c.Rate))
	case !c.Closed():
		words = append(words, fmt.Sprintf("%g/s", c.Rate))
	case c.Requests > 0 && c.Users == 1:
		words = append(words, fmt.Sprintf("%d requests of one user", c.Requests))
	case c.Requests > 0:
		words = append(words, fmt.Sprintf("%d requests of %d users", c.Requests, c.Users))
	default:
		words = append(words, fmt.Sprintf("%d users", c.Users))
	}
	for _, w := range []string{c.Arrivals, c.Family, c.Call, c.Tool} {
		if !slices.Contains(usual, w) {
			words = append(words, w)
		}
	}
	if c.KeepAlive {
		words = append(words, "keep-alive")
	}
	return strings.Join(words, ", ")
}

// Cell is one combination that is measured; repeats share it.
type Cell struct {
	Competitor
	Condition
}

// String names the cell in messages.
// Measurable reports whether the cell can be measured: clients of plain forwarding
// to several servers choose one themselves, which other tools cannot.
func (c Cell) Measurable() bool {
	return c.Engine != "direct" || c.Servers < 2 || c.Tool == "built-in"
}

// Measured lists the cells of one block, in table order.
func (p Plan) Measured() (list []Cell) {
	for _, condition := range p.Conditions {
		for _, competitor := range p.Competitors {
			if c := (Cell{Competitor: competitor, Condition: condition}); c.Measurable() {
				list = append(list, c)
			}
		}
	}
	return list
}

func (c Cell) String() string { return fmt.Sprintf("%s at %s", c.Name, c.Condition) }
