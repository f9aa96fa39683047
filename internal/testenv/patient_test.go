// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	errors, logs []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Logf(format string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}
func (r *recorder) Log(args ...any) { r.logs = append(r.logs, fmt.Sprint(args...)) }

// A test is repeated only if it failed and the machine stalled, and fails if its last attempt does.
func TestPatient(t *testing.T) {
	for name, c := range map[string]struct {
		stall        time.Duration
		fails        int // attempts, the first ones
		attempts     int
		errors, logs int
	}{
		"passes":                      {0, 0, 1, 0, 1},
		"passes beside a stall":       {time.Second, 0, 1, 0, 1},
		"fails":                       {stalled - 1, 9, 1, 1, 0},
		"fails once beside a stall":   {stalled, 1, 2, 0, 2},
		"fails twice beside stalls":   {stalled, 2, 3, 0, 3},
		"fails always beside a stall": {time.Second, 9, 5, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			began, cleaned := 0, 0
			patient(r, func(t testing.TB) {
				began++
				ctx := t.Context()
				t.Cleanup(func() {
					if cleaned++; cleaned != began || ctx.Err() == nil {
						r.Errorf("attempt %d is cleaned up as the %d-th, its context: %v", began, cleaned, ctx.Err())
					}
				})
				t.Cleanup(func() { t.Logf("attempt %d", began) })
				if began <= c.fails {
					t.Fatal("it fails")
				}
			}, func() func() time.Duration { return func() time.Duration { return c.stall } })
			if began != c.attempts || cleaned != c.attempts || len(r.errors) != c.errors || len(r.logs) != c.logs {
				t.Errorf("%d attempts, %d cleaned up, errors %q, logs %q", began, cleaned, r.errors, r.logs)
			}
			for _, text := range append(r.errors, r.logs...) {
				if strings.Contains(text, "failed") && !strings.Contains(text, "patient_test.go:") {
					t.Errorf("no line in %q", text)
				}
			}
		})
	}
}
