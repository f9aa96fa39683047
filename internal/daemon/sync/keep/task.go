// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// firstRetry is the time after which a role that failed is started again; it doubles
	// with each failure in a row, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// steady is how long a role runs before its failures are forgotten.
	steady = time.Minute
	// endPatience is how long a role may take to end. One that takes longer keeps its lock,
	// and the next start fails until it has ended.
	endPatience = 5 * time.Second
)

// State is what a role is doing.
type State string

// States.
const (
	Starting State = "starting" // its sockets are not open yet
	Running  State = "running"
	Failed   State = "failed" // it is started again
)

// Progress is how a role is doing.
type Progress struct {
	State State
	Since time.Time // of the state
	Err   error     // of Failed: why
	Retry time.Time // of Failed: when it is started again
}

// task is what is started again when it fails.
type task struct {
	Progress
	failures int // in a row
	run      *run
}

// run is one try.
type run struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
	err    error         // why; to be read after done
}

func (t *task) start(now time.Time, do func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	one := &run{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(one.done)
		one.err = do(ctx)
	}()
	t.run, t.Progress = one, Progress{State: Starting, Since: now}
}

// end stops the try that is under way.
func (t *task) end() {
	if t.run == nil {
		return
	}
	t.run.cancel()
	select {
	case <-t.run.done:
	case <-time.After(endPatience):
	}
	t.run = nil
}

// waits reports whether it failed and is not started again yet.
func (t *task) waits() bool { return t.run == nil }

// due reports whether it is time to start it again.
func (t *task) due(now time.Time) bool { return !now.Before(t.Retry) }

// errEnded is the error of a role that ended and gave none.
var errEnded = errors.New("it ended")

// look notices what has become of the try that is under way: whether it runs since now, and
// in words that it has failed since.
func (t *task) look(now time.Time, ready bool) (runs bool, failed string) {
	if ready && t.State == Starting {
		t.State, t.Since, runs = Running, now, true
	}
	select {
	case <-t.run.done:
		return runs, t.failed(now)
	default:
	}
	if t.State == Running && now.Sub(t.Since) > steady {
		t.failures = 0
	}
	return runs, ""
}

func (t *task) failed(now time.Time) string {
	err := t.run.err
	if err == nil {
		err = errEnded
	}
	t.run.cancel()
	t.run = nil
	wait := lastRetry
	if t.failures < 6 { // 2^6 s are more than lastRetry
		wait = firstRetry << t.failures
	}
	t.failures++
	t.Progress = Progress{Failed, now, err, now.Add(wait)}
	return fmt.Sprintf("failed: %v. It is started again in %v", err, wait)
}
