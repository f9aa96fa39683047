// SPDX-License-Identifier: Apache-2.0

// Package measure reads how much work the machine did: processes, BPF
// programs, the whole of it, and how fast it is at this minute.
//
// It avoids figures sampled by the timer tick: at a fixed request rate the
// work falls in step with the tick and such figures are wrong by factors. It
// decides nothing and imports nothing of this module.
package measure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// EnableBPFStats makes the kernel count run time and runs of every BPF program
// until the returned value is closed. It costs some tens of nanoseconds a run.
func EnableBPFStats() (io.Closer, error) {
	c, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("BPF statistics: %w", err)
	}
	return c, nil
}

// ProcessTime is the CPU time of a process's threads to the nanosecond
// (/proc/PID/task/*/schedstat), softirq work that ran in their context
// included. That of threads that have ended is not in it.
func ProcessTime(pid int) (time.Duration, error) {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, t := range threads {
		path := filepath.Join(tasks, t.Name(), "schedstat")
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has just ended
		}
		if err != nil {
			return 0, err
		}
		var ns int64
		if _, err := fmt.Fscan(bytes.NewReader(b), &ns); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += ns
	}
	return time.Duration(sum), nil
}

// Machine is a reading of the whole machine.
type Machine struct {
	At     time.Time
	Idle   time.Duration // over all CPUs since boot
	Stolen time.Duration // over all CPUs since boot, by the hypervisor
	CPUs   int
}

// ReadMachine takes a reading.
func ReadMachine() (Machine, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Machine{}, err
	}
	m, err := parseStat(string(b))
	m.At = time.Now()
	return m, err
}

// tick is the unit of /proc/stat (USER_HZ is 100 on all architectures).
const tick = 10 * time.Millisecond

// parseStat reads the columns idle, iowait and steal of /proc/stat (proc(5)),
// in ticks of 1/100 s. Unlike the busy columns they are kept by the clock.
func parseStat(text string) (m Machine, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		if f[0] != "cpu" {
			m.CPUs++
			continue
		}
		for _, s := range f[4:6] {
			ticks, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return m, fmt.Errorf("/proc/stat: %w", err)
			}
			m.Idle += time.Duration(ticks) * tick
		}
		if len(f) > 8 {
			ticks, err := strconv.ParseInt(f[8], 10, 64)
			if err != nil {
				return m, fmt.Errorf("/proc/stat: %w", err)
			}
			m.Stolen = time.Duration(ticks) * tick
		}
	}
	if m.CPUs == 0 {
		return m, fmt.Errorf("/proc/stat: no CPUs")
	}
	return m, nil
}

// InterruptTime is what all CPUs have spent in interrupts and softirqs since
// boot, where the kernel keeps that apart from the time of the tasks that they
// interrupt (CONFIG_IRQ_TIME_ACCOUNTING); else 0: it is in theirs. Where it is
// not kept apart, the column of interrupts stays 0: they are counted by the
// tick, which is an interrupt and does not meet another one.
func InterruptTime() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return interruptTime(string(b))
}

func interruptTime(stat string) (time.Duration, error) {
	f := strings.Fields(stat)
	if len(f) < 8 || f[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat: no CPUs")
	}
	var ticks [2]int64
	for i := range ticks {
		var err error
		if ticks[i], err = strconv.ParseInt(f[6+i], 10, 64); err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
	}
	if ticks[0] == 0 {
		return 0, nil
	}
	return time.Duration(ticks[0]+ticks[1]) * tick, nil
}

// BusySince is the share of the machine, 0 to 1, that was not idle since an
// earlier reading: elapsed x CPUs - idle. Time that a hypervisor took away
// counts as busy.
func (m Machine) BusySince(before Machine) float64 {
	total := m.At.Sub(before.At) * time.Duration(m.CPUs)
	if total <= 0 {
		return 0
	}
	return min(1, max(0, 1-float64(m.Idle-before.Idle)/float64(total)))
}

// WorkSince is the CPU time of everything that ran since an earlier reading:
// elapsed x CPUs - idle - stolen. Tasks, interrupts and softirqs are in it, and
// so is what it takes a CPU to wake up; time that a hypervisor took away is
// not. Its resolution is a tick for each CPU.
func (m Machine) WorkSince(before Machine) time.Duration {
	total := m.At.Sub(before.At) * time.Duration(m.CPUs)
	return max(0, total-(m.Idle-before.Idle)-(m.Stolen-before.Stolen))
}

// calibrationLoops makes the fixed loop take some milliseconds.
const calibrationLoops = 4 << 20

// Calibrate times a fixed loop on one CPU, best of three. Virtual machines
// change speed within minutes; a figure taken beside each sample shows it.
func Calibrate() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := time.Duration(1<<63 - 1)
	for range 3 {
		start := time.Now()
		x := uint64(88172645463325252)
		for range calibrationLoops { // xorshift: each step needs the last
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		runtime.KeepAlive(x) // or the compiler drops the loop
		best = min(best, time.Since(start))
	}
	return best
}

// settleEnough is the idle share at which the machine counts as quiet.
const settleEnough = 0.9

// Settle waits until the machine is quiet, at most for the time given, so that
// a cell does not pay for what the one before left behind.
func Settle(most time.Duration) {
	const look = 40 * time.Millisecond
	before, err := ReadMachine()
	for deadline := time.Now().Add(most); err == nil && time.Now().Before(deadline); {
		time.Sleep(look)
		var now Machine
		if now, err = ReadMachine(); err == nil && now.BusySince(before) < 1-settleEnough {
			return
		}
		before = now
	}
}
