// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strings"
)

// The generator is late when it did not keep its schedule. What the schedule
// was and when requests were started decide, nothing that the cluster did with
// them: a criterion that depends on response times would forgive the slow
// competitor what it holds against the fast one.
//
//   - Open loop and trace: a request is due at a time fixed before the run. The
//     generator is late if less than 99 % of the requests were started before
//     the schedule's end, or if 1 % of them started more than 10 ms after they
//     were due.
//   - Closed loop: a user's next request is due when the last has ended and the
//     think time has passed, however long the reply took. The generator is late
//     if 1 % of the requests started more than 10 ms after that, or if one of
//     its threads ran or waited for a CPU for 90 % of the time: more users would
//     not have sent more.
//
// 1 % is less than the differences between competitors that the lab resolves;
// 10 ms is far above the cost of a sleep and a burst of replies (tens to
// hundreds of us). Smaller delays are not lateness: they stand beside every
// latency, and what they can explain is not ranked.
const (
	minIssued      = 0.99
	maxLatenessMS  = 10.0 // 99th percentile
	saturatedShare = 0.9  // running or waiting to: the thread had no time left
	starvedShare   = 0.1  // waiting alone: enough to make starts late
)

// Judge decides whether the generator kept its schedule, and if not, why. Run
// has done so; it is for results made of what other tools say. A tool that
// does not report its delay is judged by its rate.
func (r *Result) Judge() {
	g := &r.Generator
	g.Behind, g.Reason = false, ""
	var what []string
	if r.IssuedRate < minIssued*r.OfferedRate {
		what = append(what, fmt.Sprintf("issued %.0f of %.0f requests/s", r.IssuedRate, r.OfferedRate))
	}
	if g.Lateness.P99MS > maxLatenessMS {
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
