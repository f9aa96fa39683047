// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"slices"
)

// ToolCell is one load that is made with another tool and its own parameters,
// such as those of a published experiment, for every competitor.
type ToolCell struct {
	Tool string
	// Fraction of the measured capacity and Connections make an open loop,
	// Users and Requests a closed one. Of ping, Requests is the echo requests,
	// sent one after the other.
	Fraction    float64
	Rate        float64 // in place of Fraction, where the study gives rates
	Connections int
	Users       int
	Requests    int
	KeepAlive   bool
	Calls       []string // names of load.calls; ping has none
	Published   float64  // the level of published tables; 0: its own
}

// Ping is the tool that sends ICMP echo requests.
const Ping = "ping"

// Echo names what Ping sends, where others have a Call's name.
const Echo = "echo"

// openTools and closedTools are those that a tool cell can have, by loop.
var (
	openTools   = []string{"httperf"}
	closedTools = []string{BuiltIn, "ab", "siege", Ping}
)

type toolDoc struct {
	Tool        string   `yaml:"tool"`
	Fraction    float64  `yaml:"fraction"`
	Rate        float64  `yaml:"rate"`
	Connections int      `yaml:"connections"`
	Users       int      `yaml:"users"`
	Requests    int      `yaml:"requests"`
	KeepAlive   bool     `yaml:"keep_alive"`
	Calls       []string `yaml:"calls"`
	Published   float64  `yaml:"published"`
}

func (c *checker) toolCells(list []toolDoc, s *Study) {
	if s.Load.Replay != nil {
		c.absent("load", "tool_cells", "a log is replayed by the built-in generator")
		return
	}
	for i, d := range list {
		s.Load.ToolCells = append(s.Load.ToolCells, c.toolCell(fmt.Sprintf("load.tool_cells[%d]", i), d, s))
	}
}

func (c *checker) toolCell(at string, d toolDoc, s *Study) ToolCell {
	t := ToolCell(d)
	switch {
	case slices.Contains(openTools, d.Tool):
		c.openTool(at, d, s)
	case slices.Contains(closedTools, d.Tool):
		c.closedTool(at, d)
	default:
		c.refuse(at+".tool", "%q is unknown: want one of %s", d.Tool, join(slices.Concat(openTools, closedTools)))
	}
	if c.has(at+".published") && !(d.Published > 0) {
		c.refuse(at+".published", "%g: want the level of the published tables, above 0", d.Published)
	}
	if d.Tool == Ping {
		t.Users, t.Calls = 1, []string{Echo}
		return t
	}
	var known []string
	for _, call := range s.Load.Calls {
		known = append(known, call.Name)
	}
	if !c.has(at + ".calls") {
		t.Calls = known
		return t
	}
	c.list(at+".calls", d.Calls, known)
	return t
}

// openTool checks a load whose connections begin at a rate.
func (c *checker) openTool(at string, d toolDoc, s *Study) {
	for _, key := range []string{"users", "requests", "keep_alive"} {
		c.absent(at, key, d.Tool+" is an open loop: it has a fraction or a rate, and connections")
	}
	c.between(at+".connections", d.Connections, 1, 100_000_000)
	switch fractions := len(s.Load.Fractions) > 0; {
	case c.has(at+".fraction") == c.has(at+".rate"):
		c.refuse(at, "give one of fraction (of the measured capacity) and rate (connections per second)")
	case c.has(at+".fraction") && !fractions:
		c.refuse(at+".fraction", "remove it, or give load.fractions: without them no capacity is measured")
	case c.has(at+".fraction") && !(d.Fraction > 0 && d.Fraction <= maxFraction):
		c.refuse(at+".fraction", "%g is out of range: want a fraction of the measured capacity, above 0 and at most %d", d.Fraction, maxFraction)
	case c.has(at+".rate") && !(d.Rate > 0 && d.Rate <= maxRate):
		c.refuse(at+".rate", "%g is out of range: want connections per second, above 0 and at most %g", d.Rate, maxRate)
	}
}

// closedTool checks a load whose users wait for replies.
func (c *checker) closedTool(at string, d toolDoc) {
	for _, key := range []string{"fraction", "rate", "connections"} {
		c.absent(at, key, d.Tool+" is a closed loop: it has users and requests")
	}
	c.between(at+".requests", d.Requests, 1, 100_000_000)
	if d.Tool == Ping {
		for _, key := range []string{"users", "keep_alive", "calls"} {
			c.absent(at, key, "ping sends one echo request after the other")
		}
		return
	}
	c.between(at+".users", d.Users, 1, 100_000)
	switch {
	case d.Requests < d.Users:
		c.refuse(at+".requests", "%d requests of %d users: give as many at least", d.Requests, d.Users)
	case d.Tool == "siege" && d.Requests%max(1, d.Users) != 0:
		c.refuse(at+".requests", "siege cannot share %d requests among %d users: give a multiple", d.Requests, d.Users)
	}
}
