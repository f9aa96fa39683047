// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Priorities of the loop's thread and of the worker's under SCHED_RR. Threads of the kernel
// that handle interrupts have 50.
const (
	priority       = 10
	workerPriority = 9
)

// The heap is some MB. With these settings it is collected seldom [percent, bytes].
const (
	collectAt   = 400
	memoryAbout = 64 << 20
)

// schedule makes the calling thread real-time, but not what it starts.
func schedule(priority uint32) error {
	const resetOnFork = 0x01 // SCHED_FLAG_RESET_ON_FORK
	return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Flags: resetOnFork, Priority: priority}, 0)
}

// realTime makes the calling thread real-time, and locks the memory as it is used, so that
// neither other processes nor a lack of memory delay advertisements. Other threads of the
// runtime stay as they are. The garbage collector needs them: while they wait for a CPU, the
// loop may wait for them, so it runs as seldom as possible (GOGC and GOMEMLIMIT say otherwise).
// The function that it returns ends that.
func realTime() (func(), error) {
	err := schedule(priority)
	if err != nil {
		err = fmt.Errorf("SCHED_RR: %w", err)
	}
	// Not before it is used: Go reserves more than it uses.
	err2 := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	if err2 != nil {
		err2 = fmt.Errorf("mlockall: %w", err2)
	}
	restore := func() {}
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		percent, limit := debug.SetGCPercent(collectAt), debug.SetMemoryLimit(memoryAbout)
		restore = func() {
			debug.SetGCPercent(percent)
			debug.SetMemoryLimit(limit)
		}
	}
	return func() {
		restore()
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		_ = unix.Munlockall()
	}, errors.Join(err, err2)
}
