// SPDX-License-Identifier: Apache-2.0

package process

import (
	"os"
	"strings"
)

// identity distinguishes processes of the same number: those of other starts of the machine, and
// of a container. It stays when a process executes another program. Empty: it is not known.
func identity() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses, which can have any characters.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const started = 22 - 3 // proc_pid_stat(5); the rest begins with the third field
	if len(fields) <= started {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + fields[started]
}
