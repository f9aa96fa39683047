// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// priority is that of the loop's thread under SCHED_RR. Threads of the kernel that handle
// interrupts have 50.
const priority = 10

// realTime makes the calling thread real-time, but not what it starts, and locks the memory
// as it is used, so that neither other processes nor a lack of memory delay advertisements.
// The function that it returns ends that.
func realTime() (func(), error) {
	const resetOnFork = 0x01 // SCHED_FLAG_RESET_ON_FORK
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Flags: resetOnFork, Priority: priority}, 0)
	if err != nil {
		err = fmt.Errorf("SCHED_RR: %w", err)
	}
	// Not before it is used: Go reserves more than it uses.
	err2 := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	if err2 != nil {
		err2 = fmt.Errorf("mlockall: %w", err2)
	}
	return func() {
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		_ = unix.Munlockall()
	}, errors.Join(err, err2)
}
