// SPDX-License-Identifier: Apache-2.0

package check

import (
	"time"

	"imbang/internal/model"
)

// Verdict is what a check's results so far say of a server.
type Verdict uint8

// Verdicts. A check without results has the initial one.
const (
	Unknown Verdict = iota
	Up
	Down
)

func (v Verdict) String() string { return [...]string{"unknown", "up", "down"}[v] }

// Timing says when a check is made and what it takes to change the verdict.
type Timing struct {
	Interval time.Duration // between the starts of two checks
	Fast     time.Duration // likewise while a change of the verdict is under way
	Timeout  time.Duration // of one check
	Rise     int           // successes in a row that make a server up
	Fall     int           // failures in a row that make it down
	Jitter   float64       // share by which each interval is shortened at random, 0 to 1
	Spread   time.Duration // within which the first check is made
	Initial  Verdict       // before the first change
}

// State is what follows from a check's results. It is a value: Next returns a new
// one.
type State struct {
	Verdict Verdict
	Since   time.Time // of the verdict
	Row     int       // results in a row that contradict the verdict
	Last    Result
	At      time.Time // of Last's end; zero: there is none
	Runs    uint64
	Fails   uint64
	// Withheld is the share of the weight that the last result with a share took away, and Command what an agent asked for last and has not ended: both hold until
	// another result says otherwise, as in HAProxy.
	Withheld model.Health `json:",omitempty"`
	Command  Command      `json:",omitempty"`
}

// Begin is a check's state before its first result.
func (t Timing) Begin(now time.Time) State { return State{Verdict: t.Initial, Since: now} }

// Next is the state after a result, and whether the verdict changed. Of an unknown
// verdict the first result decides: there is nothing to keep until more have come. An
// inconclusive one decides nothing.
func (t Timing) Next(s State, r Result, now time.Time) (State, bool) {
	want := Down
	s.Last, s.At = r, now
	s.Runs++
	switch {
	case r.Inconclusive:
		return s, false
	case r.OK:
		want = Up
	default:
		s.Fails++
	}
	if s.Verdict == want {
		s.Row = 0
		return s, false
	}
	s.Row++
	enough := map[Verdict]int{Up: t.Rise, Down: t.Fall}[want]
	if s.Verdict != Unknown && s.Row < enough {
		return s, false
	}
	s.Verdict, s.Since, s.Row = want, now, 0
	return s, true
}

// Wait is the time from one check's start to the next one's, before jitter.
func (t Timing) Wait(s State) time.Duration {
	if s.Row > 0 && t.Fast > 0 {
		return t.Fast
	}
	return t.Interval
}
