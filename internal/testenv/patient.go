// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A test whose processes must act within fractions of a second says nothing while the machine does
// not run them. Patient repeats it in that case.
const (
	stalled  = 50 * time.Millisecond // shorter than the intervals and timeouts of such tests
	attempts = 5
)

// Patient calls f, again if it failed and the machine stalled for 50 ms or longer meanwhile, five
// times at most. The last failure is the test's; those before are logged. Everything of an
// attempt, with its Cleanup functions, ends before the next one begins.
func Patient(t *testing.T, f func(t testing.TB)) {
	t.Helper()
	patient(t, f, func() func() time.Duration { return WatchStalls(t).Longest })
}

// PatientRun runs a subtest with Patient.
func PatientRun(t *testing.T, name string, f func(t testing.TB)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) { Patient(t, f) })
}

// patient is Patient with something that measures stalls from its call on.
func patient(t testing.TB, f func(t testing.TB), watch func() func() time.Duration) {
	t.Helper()
	for n := 1; ; n++ {
		longest := watch()
		a := &attempt{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer a.end()
			f(a)
		}()
		<-done
		text := strings.TrimRight(a.said.String(), "\n")
		switch stall := longest(); {
		case !a.Failed():
			if text != "" {
				t.Log(text)
			}
			return
		case stall < stalled || n == attempts:
			t.Errorf("attempt %d, the machine stalled for %v:\n%s", n, stall.Round(time.Millisecond), text)
			return
		default:
			t.Logf("attempt %d failed while the machine stalled for %v, again:\n%s", n, stall.Round(time.Millisecond), text)
		}
	}
}

// attempt is a test of its own that fails for itself.
type attempt struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	said     strings.Builder
	cleanups []func()
	context  context.Context
	cancel   context.CancelFunc
}

// end cancels the context and calls the functions of Cleanup, the last first. A failure in one
// of them does not prevent the others.
func (a *attempt) end() {
	a.mu.Lock()
	if a.cancel != nil {
		a.cancel()
	}
	a.mu.Unlock()
	for {
		a.mu.Lock()
		n := len(a.cleanups)
		if n == 0 {
			a.mu.Unlock()
			return
		}
		last := a.cleanups[n-1]
		a.cleanups = a.cleanups[:n-1]
		a.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			last()
		}()
		<-done
	}
}

// Cleanup has f called when the attempt ends.
func (a *attempt) Cleanup(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleanups = append(a.cleanups, f)
}

// Context is canceled when the attempt ends, before the functions of Cleanup.
func (a *attempt) Context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.context == nil {
		a.context, a.cancel = context.WithCancel(context.Background())
	}
	return a.context
}

func (a *attempt) Fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = true
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.failed
}

// FailNow ends the calling goroutine, as that of testing does.
func (a *attempt) FailNow() {
	a.Fail()
	runtime.Goexit()
}

// say keeps a message with the line that it comes from.
func (a *attempt) say(text string) {
	const caller = 2 // of Logf and the like
	place := ""
	if _, file, line, ok := runtime.Caller(caller); ok {
		place = fmt.Sprintf("%s:%d: ", file[strings.LastIndexByte(file, '/')+1:], line)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Fprintf(&a.said, "%s%s\n", place, strings.TrimRight(text, "\n"))
}

func (a *attempt) Log(args ...any)                 { a.say(fmt.Sprintln(args...)) }
func (a *attempt) Logf(format string, args ...any) { a.say(fmt.Sprintf(format, args...)) }

func (a *attempt) Error(args ...any) {
	a.say(fmt.Sprintln(args...))
	a.Fail()
}

func (a *attempt) Errorf(format string, args ...any) {
	a.say(fmt.Sprintf(format, args...))
	a.Fail()
}

func (a *attempt) Fatal(args ...any) {
	a.say(fmt.Sprintln(args...))
	a.FailNow()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.say(fmt.Sprintf(format, args...))
	a.FailNow()
}
