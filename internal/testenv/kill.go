// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"syscall"
	"testing"
)

// Kill sends a signal to a process and fails the test if that is not possible. It refuses
// numbers below 2: kill(2) takes 0 and negative numbers for process groups, and 0 is the
// group of the test itself with the command that runs all tests.
func Kill(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	if pid < 2 {
		t.Fatalf("send %s to process %d: that is no process of the test", s, pid)
	}
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("send %s to process %d: %v", s, pid, err)
	}
}
