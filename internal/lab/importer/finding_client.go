// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"
)

// Findings about the client: was it the bottleneck?

// clientLimits are httperf's errors that say the client ran out of something
// before it began a connection.
var clientLimits = []string{"fd-unavail", "addrunavail", "ftab-full"}

const (
	busyCPU  = 80 // percent from which a client has little left to send more
	wholeCPU = 95 // percent below which httperf, which polls, was disturbed
	reached  = 0.95
)

func notBegun(r *Result) (n int64) {
	for _, c := range clientLimits {
		n += r.Errors[c]
	}
	return n
}

func sayClientLimits(about, all []*Result) string {
	asked, exact := "", true
	for _, r := range about {
		exact = exact && r.Asked.Connections != nil
	}
	if exact {
		asked = " of " + span(about, "%.0f", func(r *Result) float64 { return float64(*r.Asked.Connections) })
	}
	says, remedy := "such results measure", "raise ulimit -n"
	if !slices.ContainsFunc(about, func(r *Result) bool { return r.Tool != Httperf }) {
		says = "such results, says httperf's manual, are meaningless, for they measure"
		remedy += " (an httperf that polls with select stays below 1024)"
	}
	return fmt.Sprintf("%s ran out of %s: %s%s connections were never begun; %s the client's limit and not the cluster: "+
		"use several clients, ask for less, or %s.",
		subject(about, all), ranOut(about), span(about, "%.0f", func(r *Result) float64 { return float64(notBegun(r)) }), asked, says, remedy)
}

// stopped reports whether httperf ended before it had begun the connections that it was
// asked for.
func stopped(r *Result) bool {
	return r.Tool == Httperf && r.Asked.Connections != nil && !r.Asked.Sessions && *r.Connections+notBegun(r) < *r.Asked.Connections
}

func sayStopped(about, all []*Result) string {
	return fmt.Sprintf("%s ended after %s of %s connections: httperf was stopped (^C or a signal), and its figures are of that part only.",
		subject(about, all), span(about, "%.0f", func(r *Result) float64 { return float64(*r.Connections + notBegun(r)) }),
		span(about, "%.0f", func(r *Result) float64 { return float64(*r.Asked.Connections) }))
}

// neverOpened reports whether wrk, which opens all its connections at the start, could not
// open some of them.
func neverOpened(r *Result) bool {
	return r.Tool == Wrk && r.Errors["connect"] > 0 && r.Asked.Concurrency != nil
}

func sayNeverOpened(about, all []*Result) string {
	return fmt.Sprintf("%s counted %s errors of connect with %s connections asked, so the load was that of fewer clients. "+
		"wrk does not print the cause: the client's limit of file descriptors (ulimit -n), its port numbers, or a server that refuses.",
		subject(about, all), span(about, "%.0f", func(r *Result) float64 { return float64(r.Errors["connect"]) }),
		span(about, "%.0f", func(r *Result) float64 { return float64(*r.Asked.Concurrency) }))
}

// ranOut names what was used up, with httperf's word for it.
func ranOut(rs []*Result) string {
	var parts []string
	for _, l := range []struct{ cause, what string }{
		{"fd-unavail", "file descriptors"}, {"addrunavail", "port numbers"}, {"ftab-full", "the system's file table"},
	} {
		if slices.ContainsFunc(rs, func(r *Result) bool { return r.Errors[l.cause] > 0 }) {
			parts = append(parts, l.what+" ("+l.cause+")")
		}
	}
	return strings.Join(parts, " and ")
}

func rateMissed(r *Result) bool {
	return r.Asked.Rate != nil && !r.Asked.Sessions && r.ConnectionRate != nil && *r.ConnectionRate < reached**r.Asked.Rate
}

// possible is the rate that httperf would print if every connection were begun
// in time and the last one timed out: its duration includes that wait.
func possible(r *Result) (float64, bool) {
	if r.Asked.Connections == nil || r.Asked.TimeoutS == nil {
		return 0, false
	}
	n := float64(*r.Asked.Connections)
	return n / (n / *r.Asked.Rate + *r.Asked.TimeoutS), true
}

func sayRateMissed(about, all []*Result) string {
	text := fmt.Sprintf("%s achieved %s of the %s connections/s asked (%s %%)", subject(about, all),
		span(about, "%.0f", func(r *Result) float64 { return *r.ConnectionRate }),
		span(about, "%.0f", func(r *Result) float64 { return *r.Asked.Rate }),
		span(about, "%.0f", func(r *Result) float64 { return 100 * *r.ConnectionRate / *r.Asked.Rate }))
	short := 0
	for _, r := range about {
		if p, ok := possible(r); ok && *r.ConnectionRate < p {
			short++
		}
	}
	switch short {
	case 0:
		text += "; httperf's duration includes the wait for the last replies, which may be why"
	case len(about):
		text += "; the wait for the last replies, which httperf's duration includes, does not explain it"
	default:
		text += fmt.Sprintf("; the wait for the last replies, which httperf's duration includes, does not explain it in %d of them", short)
	}
	return text + ": the column of the asked rate is not the load that was carried."
}

func sayClientCPU(about, all []*Result) string {
	return fmt.Sprintf("%s kept the client's processor %s %% busy (%s %% in the kernel), which leaves it little to send more; "+
		"but httperf polls and is near 100 %% under any load, so this alone does not prove that the client was the bottleneck.",
		subject(about, all), span(about, "%.0f", func(r *Result) float64 { return r.CPU.Total }),
		span(about, "%.0f", func(r *Result) float64 { return r.CPU.System }))
}

func sayClientShared(about, all []*Result) string {
	return fmt.Sprintf("%s had %s %% of a processor: httperf, which polls, uses all of one that it has to itself, "+
		"so other work (or the virtual machine's host) took the rest while it measured.",
		subject(about, all), span(about, "%.0f", func(r *Result) float64 { return r.CPU.Total }))
}
