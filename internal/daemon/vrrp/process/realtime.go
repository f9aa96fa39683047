// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp/setup"
)

// Priorities of the loop's thread and of the worker's under SCHED_RR. Threads of the kernel
// that handle interrupts have 50.
const (
	priority       = 10
	workerPriority = 9
)

// The memory that the process may use before it is collected [bytes], as a bound and for each
// address and real server, which take a small part of that. The heap is some MB, and grows by
// some MB in an hour.
const (
	memoryAbout      = 64 << 20
	memoryPerAddress = 16 << 10
	memoryPerServer  = 256
)

// processors is how many goroutines can run at the same time at least: with as many as CPUs, the
// loop would wait for another one whose thread, which is not real-time, waits for a CPU.
const processors = 4

// schedule makes the calling thread real-time, but not what it starts.
func schedule(priority uint32) error {
	const resetOnFork = 0x01 // SCHED_FLAG_RESET_ON_FORK
	return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Flags: resetOnFork, Priority: priority}, 0)
}

// collectSeldom has the garbage collector run only when the memory that belongs to a
// configuration is used up, unless GOGC says otherwise: not every two minutes, as it does by
// itself. Its threads are not real-time, and the loop waits for them while they wait for a CPU.
// The function that it returns ends that.
func collectSeldom(s *setup.Setup) (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	limit := int64(memoryAbout) + memoryPerServer*int64(len(s.Servers))
	for i := range s.Groups {
		limit += memoryPerAddress * int64(len(s.Groups[i].AllAddresses()))
	}
	percent, before := debug.SetGCPercent(-1), debug.SetMemoryLimit(limit)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(before)
	}
}

// realTime makes the calling thread real-time, and locks the memory as it is used, so that
// neither other processes nor a lack of memory delay advertisements. Other threads of the
// runtime stay as they are. The function that it returns ends that.
func realTime(s *setup.Setup) (func(), error) {
	err := schedule(priority)
	if err != nil {
		err = fmt.Errorf("SCHED_RR: %w", err)
	}
	// Not before it is used: Go reserves more than it uses.
	err2 := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	if err2 != nil {
		err2 = fmt.Errorf("mlockall: %w", err2)
	}
	restore := collectSeldom(s)
	atOnce := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(processors, atOnce))
	return func() {
		runtime.GOMAXPROCS(atOnce)
		restore()
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		_ = unix.Munlockall()
	}, errors.Join(err, err2)
}
