// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"os/exec"
	"testing"
	"time"
)

// Scripts and daemons run ipvsadm for every look and every change, and wait for
// it. What a package prepares when a program starts, all of them pay for.
func TestCommandsStartAtOnce(t *testing.T) {
	const limit = 15 * time.Millisecond
	best := time.Hour
	for range 20 {
		cmd := exec.Command(executable, "version")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		best = min(best, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	if best > limit {
		t.Errorf("the least of 20 starts took %v of CPU, want %v at most (GODEBUG=inittrace=1 names who prepares what)", best, limit)
	}
}
