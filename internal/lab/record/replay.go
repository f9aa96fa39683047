// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Replayed is the Arrivals of a condition whose requests come as in a log.
const Replayed = "replayed"

// Replay is the log of a run that replays one: which it was, so that it is
// known again, and what was made of it.
type Replay struct {
	Log    string `json:"log"` // its path
	SHA256 string `json:"sha256"`

	Began    time.Time     `json:"began"`     // of the part that is replayed
	Length   time.Duration `json:"length_ns"` // of that, as logged
	Requests int           `json:"requests"`
	Busiest  int           `json:"busiest"` // requests of one second
	Clients  int           `json:"clients"`
	Bytes    int64         `json:"bytes"` // of the replies
	// Skipped counts what is not sent, by method or cause; Bad lines are not
	// of the format, and FirstBad says what is wrong with the first.
	Skipped  map[string]int `json:"skipped,omitempty"`
	Bad      int            `json:"bad,omitempty"`
	FirstBad string         `json:"first_bad,omitempty"`
}

// Rate is the mean one as logged, in requests per second.
func (r *Replay) Rate() float64 { return float64(r.Requests) / max(r.Length.Seconds(), 1e-3) }

// Lines describe the log and what is left out of it.
func (r *Replay) Lines() []string {
	lines := []string{fmt.Sprintf("%s: %d requests of %d clients in %v from %s, %s/s on average, %d in the busiest second; replies of %s KB on average",
		r.Log, r.Requests, r.Clients, r.Length.Round(100*time.Millisecond), r.Began.Format("2006-01-02 15:04:05 -0700"),
		Figure(r.Rate()), r.Busiest, Figure(float64(r.Bytes)/1024/float64(max(1, r.Requests))))}
	var left []string
	for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
		left = append(left, fmt.Sprintf("%d %s", r.Skipped[why], why))
	}
	if len(left) > 0 {
		lines = append(lines, "not sent: "+strings.Join(left, ", "))
	}
	if r.Bad > 0 {
		lines = append(lines, fmt.Sprintf("not read: %d lines, such as %s", r.Bad, r.FirstBad))
	}
	return lines
}

// Figure is a number for a sentence: three digits, and all before its point.
func Figure(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
