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

// pinned runs fn on one CPU and returns the time that the CPU gave to it and
// to the packets that it sent: all that passed, less what the thread waited
// while other tasks ran, and with what the CPU's ksoftirqd ran. Work that the
// kernel does in softirq on the way out of a system call is in it, however the
// kernel accounts for it; it does not depend on the timer's tick.
func pinned(cpu int, fn func() error) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var home, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &home); err != nil {
		return 0, fmt.Errorf("CPU affinity: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return 0, fmt.Errorf("run on CPU %d alone: %w", cpu, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &home) }() // as it was, or the thread stays where it is
	softirqs := ksoftirqd(cpu)
	before, err := readRun(softirqs)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := fn(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	after, err := readRun(softirqs)
	return took - (after.waited - before.waited) + (after.softirqs - before.softirqs), err
}

// runTimes are what the scheduler knows of this thread and of a ksoftirqd.
type runTimes struct{ waited, softirqs time.Duration }

func readRun(softirqs string) (r runTimes, err error) {
	if _, r.waited, err = schedstat("/proc/thread-self"); err != nil {
		return r, err
	}
	if softirqs != "" {
		r.softirqs, _, err = schedstat(softirqs)
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

// ksoftirqd is the directory of a CPU's in /proc, or nothing where processes
// of the machine are not seen.
func ksoftirqd(cpu int) string {
	names, _ := filepath.Glob("/proc/[0-9]*/comm") // of a constant
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == fmt.Sprintf("ksoftirqd/%d", cpu) {
			return filepath.Dir(n)
		}
	}
	return ""
}

// lastCPU is the last one that this process may use; interrupts prefer the
// first.
func lastCPU() (int, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return 0, fmt.Errorf("CPU affinity: %w", err)
	}
	last := 0
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			last = cpu
		}
	}
	return last, nil
}
