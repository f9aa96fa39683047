// SPDX-License-Identifier: Apache-2.0

package history

import (
	"strings"
	"time"
)

// change is a change of what a part measures. Figures before and after it are of
// different series and are not compared.
type change struct {
	part   string
	since  time.Time
	commit string
	what   string
}

// changes are all of them, by part and date. Who changes a measure adds a line
// in the same commit, and measures old and new on one commit where both can be.
var changes = []change{
	{"path", at("2026-11-22T16:00:00Z"), "31137ef", "downloads are discarded in the kernel, not copied by the client"},
	{"path", at("2026-11-22T17:10:00Z"), "ec1ec43", "the file of bulk has 500 MB instead of 100"},
	{"path", at("2026-11-22T20:00:00Z"), "6d68740", "competitors are measured within about a second of each other: 54 rounds of samples of 0.1 s in three sittings; CPU is the run time of those that take part, not the time that was not idle"},
	{"path", at("2026-11-22T21:05:00Z"), "1349faa", "a sample of bulk has four downloads instead of two"},
	{"path", at("2026-11-23T18:00:00Z"), "7f0c9e0", "rates count replies within the window, not until the last one"},
	{"path", at("2026-11-23T18:00:00Z"), "faf1273", "HAProxy runs on all CPUs and splices; nginx has reuseport and no temporary files"},
	{"path", at("2026-11-23T18:00:00Z"), "c9f4793", "imbang sends by the last step of all others; the earlier one is imbang-peer"},
	{"path", at("2026-11-23T18:00:00Z"), "", "the CPU time of the whole machine, and of it what plain forwarding does not use, are measured beside that of those that take part"},
	{"memory", at("2026-11-24T00:40:00Z"), "", "where the kernel's store of small objects shrinks meanwhile, a connection has the memory of its tables, not less"},
	{"synflood", at("2026-11-24T00:40:00Z"), "", "new clients begin to connect at least 5 s before the flood ends: later ones may connect when it is over"},
	{"synflood", at("2026-12-01T03:30:00Z"), "", "memory is added to the connection table ahead of need, as imbang run does; before, the kernel allocated it while packets came"},
	{"flood", at("2026-11-22T16:00:00Z"), "97da670", "packets come as frames of a driver, not of a packet socket; samples have 500 000 packets instead of 200 000"},
	{"flood", at("2026-11-22T20:00:00Z"), "4c4bc46", "where one side of a ratio is above noop-xdp, both are (one flow by XDP over plain forwarding: 0.33 before, 0.21 after)"},
	{"flood", at("2026-11-23T18:00:00Z"), "c9f4793", "imbang-tc sends by the last step of all others; the earlier one is imbang-tc-peer"},
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// seriesAt is the number of the series that a part's figures of a date belong to,
// from 1. Changes of one date are one step.
func seriesAt(part string, date time.Time) int {
	n, last := 1, time.Time{}
	for _, c := range changes {
		if c.part == part && !date.Before(c.since) && !c.since.Equal(last) {
			n, last = n+1, c.since
		}
	}
	return n
}

// series is the number of the series of a measured part.
func (m measured) series() int {
	if m.Series > 0 {
		return m.Series
	}
	return seriesAt(m.Name, m.run.Environment.Date)
}

// writeChanges lists the changes of a part's measures.
func writeChanges(w *strings.Builder, part string) {
	var body [][]string
	for _, c := range changes {
		if c.part == part {
			body = append(body, []string{number(seriesAt(part, c.since)), c.since.Format("2006-01-02"), c.commit, c.what})
		}
	}
	if len(body) > 0 {
		w.WriteString("\nChanges of what is measured; each starts a new series:\n")
		table(w, []string{"series", "since", "commit", "change"}, body)
	}
}
