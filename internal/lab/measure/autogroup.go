// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"os"
)

// autogroup is whether the scheduler gives each session a share of the CPUs of its own (sched(7), "The
// autogroup feature"). Niceness counts within a session only then.
const autogroup = "/proc/sys/kernel/sched_autogroup_enabled"

// keptAutogroup has what it was before while it is changed: the next run restores it after one that was killed.
const keptAutogroup = "/run/imbang-lab-autogroup"

// OneGroup has all processes compete as if they were of one session, until restore is called: a program that
// begins a session of its own would get another share of the CPUs than one that does not, and the clients'
// precedence would not hold against it. Without the feature, or the permission, nothing is changed.
func OneGroup() (restore func()) { return oneGroup(autogroup, keptAutogroup) }

func oneGroup(file, kept string) (restore func()) {
	before, err := os.ReadFile(file)
	if err != nil {
		return func() {}
	}
	if last, err := os.ReadFile(kept); err == nil {
		before = last
	}
	if bytes.Equal(bytes.TrimSpace(before), []byte("0")) || os.WriteFile(kept, before, 0o600) != nil {
		return func() {}
	}
	if err := os.WriteFile(file, []byte("0\n"), 0); err != nil {
		_ = os.Remove(kept)
		return func() {}
	}
	return func() {
		_ = os.WriteFile(file, before, 0)
		_ = os.Remove(kept)
	}
}
