// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strings"
)

// The generator is behind when it issued less than 99 % of what the schedule
// offered, or 1 % of the connections started later than 10 ms and than a
// twentieth of the time within which 99 % were answered. One per cent is the
// difference the lab wants to resolve between schedulers; 10 ms is far above
// what sleeping and a burst of replies cost (tens to hundreds of us); and
// where a cluster takes a second, 10 ms of delay are none of what is measured.
// The measured lateness stands beside the verdict for those who want less.
//
// A closed loop has no schedule to fall behind. It limits itself when one of
// its threads has no time left: then more users would not have sent more.
const (
	minIssued      = 0.99
	maxLatenessMS  = 10.0
	maxLateShare   = 0.05 // of the response times, both at their 99th percentile
	saturatedShare = 0.9  // running or waiting to: the thread had no time left
	starvedShare   = 0.1  // waiting alone: enough to make starts late
)

// Judge decides whether the generator kept its schedule, and if not, why. Run
// has done so; it is for results made of what other tools say.
func (r *Result) Judge() {
	g := &r.Generator
	var what []string
	if r.IssuedRate < minIssued*r.OfferedRate {
		what = append(what, fmt.Sprintf("issued %.0f of %.0f requests/s", r.IssuedRate, r.OfferedRate))
	}
	if late := g.Lateness.P99MS; late > maxLatenessMS && late > maxLateShare*r.Response.P99MS {
		what = append(what, fmt.Sprintf("1 %% of the starts were over %.1f ms late", g.Lateness.P99MS))
	}
	if r.Loop == closedLoop && g.BusyShare+g.WaitShare >= saturatedShare {
		what = append(what, fmt.Sprintf("%.0f requests/s may be all it can send", r.IssuedRate))
	}
	if len(what) == 0 {
		return
	}
	g.Behind = true
	g.Reason = strings.Join(what, ", ") + ": " + r.cause()
}

// cause names the limits that were met.
func (r *Result) cause() string {
	if why := r.Limits(); len(why) > 0 {
		return strings.Join(why, "; ")
	}
	return "no limit found, " + r.share() + ": the machine was stopped or slow to wake"
}

// Limits lists the client's own limits that the run met, the certain ones
// first: descriptors, ports, other errors of its machine, and CPU.
func (r *Result) Limits() (why []string) {
	g, c := &r.Generator, &r.Loss.Client
	if c.Descriptors > 0 {
		why = append(why, fmt.Sprintf("descriptor limit %d (%d connections not opened)", g.DescriptorLimit, c.Descriptors))
	}
	if c.Addresses > 0 {
		why = append(why, fmt.Sprintf("local ports or source addresses (%d connections not opened)", c.Addresses))
	}
	if c.Other > 0 {
		example := ""
		if c.lastOther != 0 { // it is not stored
			example = fmt.Sprintf(" such as %q", c.lastOther.Error())
		}
		why = append(why, fmt.Sprintf("local errors%s (%d connections not opened)", example, c.Other))
	}
	if g.BusyShare+g.WaitShare >= saturatedShare || g.WaitShare >= starvedShare {
		why = append(why, "CPU: "+r.share())
	}
	return why
}

func (r *Result) share() string {
	return fmt.Sprintf("a client's thread ran %.0f %% of the time and waited %.0f %% for a CPU that others used",
		100*r.Generator.BusyShare, 100*r.Generator.WaitShare)
}
