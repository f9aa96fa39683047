// SPDX-License-Identifier: Apache-2.0

package record

import "fmt"

// What limits the capacity that a pilot finds.
const (
	LimitCluster   = "cluster"   // requests were lost or not answered in time
	LimitGenerator = "generator" // the generator did not keep its schedule
	LimitNone      = "none"      // no probe failed
)

// Capacity is the highest rate at which a study's cluster answers what it is
// asked, as a pilot found it before the first block. The conditions' rates are
// fractions of it, the same for all competitors.
type Capacity struct {
	Rate float64 `json:"rate"` // connections per second
	// Competitor forwards during the probes.
	Competitor string `json:"competitor"`
	Family     string `json:"family"`
	Limit      string `json:"limit"` // one of the Limit constants
	// Found is false if no probe passed: Rate is then the lowest rate probed.
	Found  bool    `json:"found"`
	Rule   string  `json:"rule"` // by which a probe passes, in words
	Probes []Probe `json:"probes"`
}

// Probe is one short run at a rate.
type Probe struct {
	Rate    float64 `json:"rate"`               // connections per second, 0 of a closed loop
	Users   int     `json:"users,omitempty"`    // of the closed loop that gives the first estimate
	Seconds float64 `json:"seconds"`            // of the window
	Replies float64 `json:"replies_per_second"` // within the window
	// Carried is the share of the scheduled requests that were answered within
	// the window, those that are always under way at its end included.
	Carried float64 `json:"carried"`
	Lost    int     `json:"lost"`
	MeanMS  float64 `json:"mean_ms"` // response time
	Behind  bool    `json:"behind"`  // the generator did not keep its schedule
	Reason  string  `json:"reason,omitempty"`
	Passed  bool    `json:"passed"`
}

// Pilot is what one competitor measured several times at each level of a study
// before the first block. It says how much runs of one cell differ, and so
// which difference the design can find.
type Pilot struct {
	Competitor string `json:"competitor"`
	// Blocks is how many the plan had when the pilot ran: blocks are added later,
	// or left out. 0 in runs stored before it was kept.
	Blocks int        `json:"blocks,omitempty"`
	Runs   []PilotRun `json:"runs"`
}

// PilotRun is one short run of a condition.
type PilotRun struct {
	Condition  Condition `json:"condition"`
	Repeat     int       `json:"repeat"` // from 1
	Seconds    float64   `json:"seconds"`
	MeanMS     float64   `json:"mean_ms"`        // response time
	P99MS      float64   `json:"p99_ms"`         // response time
	Throughput float64   `json:"throughput_kbs"` // requests and replies, 1024 bytes a KB
	ReplyRate  float64   `json:"reply_rate"`     // per second
	Lost       int       `json:"lost,omitempty"`
	Behind     bool      `json:"behind,omitempty"` // the generator did not keep its schedule
}

// Lines say how the capacity was found.
func (c *Capacity) Lines() []string {
	what := map[string]string{
		LimitCluster:   "beyond it the cluster does not answer in time",
		LimitGenerator: "beyond it the load generator does not keep its schedule: fractions are of what it can send",
		LimitNone:      "no probe failed",
	}[c.Limit]
	if !c.Found {
		what = "no probe passed: this is the lowest rate that was probed"
	}
	lines := []string{fmt.Sprintf("capacity: %g connections/s, found with %s in %d probes; %s", c.Rate, c.Competitor, len(c.Probes), what)}
	return append(lines, "a rate is carried if it passes "+c.Rule)
}
