// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
)

var layer7Measures = flag.String("layer7-measures", "", "file to write measurements of layer 7 into")

// layer7Result is the content of the file.
type layer7Result struct {
	Environment measuredOn `json:"environment"`
	// Configurations are ways to write the same. A ratio is of the requests that the rendered one carries
	// to those that this one carries in the same CPU time, of the same round.
	Configurations []layer7Row `json:"configurations"`
	// Hops are ways to a node. A ratio is of the requests that this one carries to those of the node alone, which is the
	// mean of both rows of it; for the second one it is the first.
	Hops []layer7Row `json:"hops"`
	// HopsAllDecapsulated are those of the measure before: a program that takes headers of tunnels off looked at all packets
	// of the node but those of the node alone, the router was the director's host with its programs, and the ways took
	// turns in one order.
	HopsAllDecapsulated []layer7Row `json:"hops_all_decapsulated"`
	// SecondsOfHops are those of the measure before, which gave each way a second in turn.
	SecondsOfHops []layer7Row `json:"hops_by_the_second"`
}

// layer7Row is what a request costs one of several.
type layer7Row struct {
	Case   string `json:"case"`
	Name   string `json:"name"`
	Commit string `json:"commit"`
	CPU    share  `json:"cpu_us"` // HAProxy's
	Ratio  share  `json:"ratio"`  // by HAProxy's CPU time, with what a director adds to the machine's
	// Of the whole machine, with clients and servers.
	Machine      *share `json:"machine_us,omitempty"`
	MachineRatio *share `json:"machine_ratio,omitempty"`
	// More than of the node alone.
	Added *share `json:"added_us,omitempty"`
	// By round.
	CPURounds     []float64 `json:"cpu_us_of_rounds,omitempty"`
	MachineRounds []float64 `json:"machine_us_of_rounds,omitempty"`
}

// rounded is to ns.
func rounded(us []float64) []float64 {
	list := slices.Clone(us)
	for i := range list {
		list[i] = math.Round(list[i]*1e3) / 1e3
	}
	return list
}

// String is for who looks on.
func (r layer7Row) String() string {
	s := fmt.Sprintf("%s, %s: %s us, ratio %s", r.Case, r.Name, r.CPU, r.Ratio)
	if r.Machine != nil {
		s += fmt.Sprintf("; machine %s us, %s more, ratio %s", r.Machine, r.Added, r.MachineRatio)
	}
	return s
}

// String is a median with its interval.
func (s share) String() string {
	return fmt.Sprintf("%.3f (%.3f to %.3f)", s.Median, s.Interval.Low, s.Interval.High)
}

// noteLayer7 prints rows, and puts them into the file, if there is to be one.
func noteLayer7(t *testing.T, list func(*layer7Result) *[]layer7Row, rows []layer7Row) {
	t.Helper()
	for _, r := range rows {
		fmt.Println(r)
	}
	keep(t, *layer7Measures, func(all *layer7Result) *measuredOn { return &all.Environment }, func(all *layer7Result, commit string) {
		for i := range rows {
			rows[i].Commit = commit
		}
		*list(all) = rows
	})
}
