// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"math"
	"path/filepath"
	"sort"
	"time"

	"imbang/internal/lab/accesslog"
	"imbang/internal/lab/load"
	"imbang/internal/lab/record"
	"imbang/internal/lab/serve"
	"imbang/internal/lab/study"
)

// Log is a web server's log that a study replays.
type Log struct {
	Summary record.Replay
	spec    study.Replay
	log     *accesslog.Log
}

// OpenLog reads the log that a study replays, and requires that it can be.
func OpenLog(spec study.Replay) (*Log, error) {
	path, err := filepath.Abs(spec.Log)
	if err != nil {
		return nil, fmt.Errorf("access log %s: %w", spec.Log, err)
	}
	read, err := accesslog.ReadFile(spec.Log)
	if err != nil {
		return nil, err
	}
	l := &Log{spec: spec, log: read}
	t, err := l.trace(1, 0)
	if err != nil {
		return nil, fmt.Errorf("access log %s: %w", spec.Log, err)
	}
	l.Summary = record.Replay{
		Log: path, SHA256: read.SHA256, Began: t.Began, Length: t.Length, Requests: len(t.Events), Busiest: t.Busiest,
		Clients: len(t.Clients), Bytes: t.Bytes, Skipped: t.Skipped, Bad: read.Bad, FirstBad: read.First,
	}
	return l, nil
}

// ReopenLog reads the log of a stored run again, which must be the same.
func ReopenLog(spec study.Replay, then record.Replay) (*Log, error) {
	spec.Log = then.Log
	l, err := OpenLog(spec)
	if err != nil {
		return nil, err
	}
	if l.Summary.SHA256 != then.SHA256 {
		return nil, fmt.Errorf("access log %s: it has changed since the run began (SHA-256 %.12s..., was %.12s...): "+
			"put the old one back, or begin a new run", then.Log, l.Summary.SHA256, then.SHA256)
	}
	return l, nil
}

// Enter puts the log into a plan: what it was, and its rates at the plan's
// speeds.
func (l *Log) Enter(p *record.Plan) error {
	p.Replay = &l.Summary
	for i := range p.Conditions {
		c := &p.Conditions[i]
		t, err := l.trace(c.Speed, 0)
		if err != nil {
			return err
		}
		n, length := len(t.Events), t.Length
		if p.Duration > 0 && p.Duration < length {
			n, length = sort.Search(n, func(i int) bool { return t.Events[i].At >= p.Duration }), p.Duration
		}
		c.Rate = rounded(float64(max(1, n)) / length.Seconds())
	}
	return nil
}

// rounded keeps four digits.
func rounded(rate float64) float64 { return significant(rate, 4) }

// significant keeps a number of digits.
func significant(x float64, digits int) float64 {
	unit := math.Pow(10, float64(digits-1)-math.Floor(math.Log10(x)))
	return math.Round(x*unit) / unit
}

// trace is the log as a load. A client has its own number, and each path says
// how long its reply was.
func (l *Log) trace(speed float64, seed uint64) (*accesslog.Trace, error) {
	return accesslog.Replay(l.log, accesslog.Options{
		Speed: speed, From: l.spec.From, Until: l.spec.Until, Methods: l.spec.Methods, Uniform: l.spec.Uniform, Seed: seed,
		Path: func(e accesslog.Entry) string {
			path := accesslog.PathOf(e.Target)
			if path == "" {
				return ""
			}
			return serve.Sized(e.Bytes) + path
		},
	})
}

// fill makes a plan send the log, or as much of it as comes within a time.
func (l *Log) fill(p *load.Plan, speed float64, atMost time.Duration) error {
	t, err := l.trace(speed, p.Seed)
	if err != nil {
		return fmt.Errorf("access log %s: %w", l.spec.Log, err)
	}
	p.Trace, p.Requests = t.Events, t.Requests
	if atMost > 0 && atMost < t.Length {
		p.Duration = atMost
	}
	return nil
}
