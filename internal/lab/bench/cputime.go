// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stopwatch takes the time of work on one CPU.
type stopwatch struct {
	cpu      int
	softirqs string // the directory in /proc of the CPU's ksoftirqd; empty where it is not seen
}

// newStopwatch takes the last CPU that this process may use; interrupts prefer
// the first.
func newStopwatch() (w stopwatch, err error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return w, fmt.Errorf("CPU affinity: %w", err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			w.cpu = cpu
		}
	}
	names, _ := filepath.Glob("/proc/[0-9]*/comm") // of a constant
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == fmt.Sprintf("ksoftirqd/%d", w.cpu) {
			w.softirqs = filepath.Dir(n)
		}
	}
	return w, nil
}

// time runs fn on the CPU and returns the time that the CPU gave to it and
// to the packets that it sent: all that passed, less what the thread waited
// while other tasks ran, and with what the CPU's ksoftirqd ran. Work that the
// kernel does in softirq on the way out of a system call is in it, however the
// kernel accounts for it; it does not depend on the timer's tick.
func (w stopwatch) time(fn func() error) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var home, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &home); err != nil {
		return 0, fmt.Errorf("CPU affinity: %w", err)
	}
	one.Set(w.cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return 0, fmt.Errorf("run on CPU %d alone: %w", w.cpu, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &home) }() // as it was, or the thread stays where it is
	before, err := w.read()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := fn(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := w.read()
	return took - (after.waited - before.waited) + (after.softirqs - before.softirqs), err
}

// runTimes are what the scheduler knows of this thread and of a ksoftirqd.
type runTimes struct{ waited, softirqs time.Duration }

func (w stopwatch) read() (r runTimes, err error) {
	if _, r.waited, err = schedstat("/proc/thread-self"); err != nil {
		return r, err
	}
	if w.softirqs != "" {
		r.softirqs, _, err = schedstat(w.softirqs)
	}
	return r, err
}

// schedstat is how long a task has run, and how long it has waited for a CPU.
func schedstat(task string) (ran, waited time.Duration, err error) {
	path := filepath.Join(task, "schedstat")
	b, err := os.ReadFile(path)
	if err == nil {
		_, err = fmt.Sscan(string(b), &ran, &waited)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return ran, waited, nil
}
