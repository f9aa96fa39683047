// SPDX-License-Identifier: Apache-2.0

package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// now is the time of machines: CLOCK_BOOTTIME also runs while the host is suspended.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}
