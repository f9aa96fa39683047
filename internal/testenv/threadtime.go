// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ThreadTime is the CPU time that a call takes of its thread. Unlike the time that passes, it is the
// same beside other work of the machine. What other goroutines do is not in it.
func ThreadTime(t testing.TB, f func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatal(err)
		}
		return time.Duration(at.Nano())
	}
	before := used()
	f()
	return used() - before
}
