// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// startTime is when a process started, in clock ticks since boot (field 22 of
// /proc/PID/stat, proc(5)). A process that waits to be reaped counts as gone.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The second field is the command in brackets and may hold anything.
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields after the command, want 20 or more", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// killInside kills the processes of the namespace bound at path, and waits
// until they are out of it. A process is out as soon as it is a zombie, so
// nobody has to reap it for that.
func killInside(path string) {
	var want unix.Stat_t
	if unix.Stat(path, &want) != nil {
		return
	}
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
		pids := pidsInside(want)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
		}
		time.Sleep(time.Millisecond)
	}
}

// pidsInside lists the processes, other than this one, whose network namespace
// is the one with this device and inode.
func pidsInside(want unix.Stat_t) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &st) != nil {
			continue
		}
		if st.Dev == want.Dev && st.Ino == want.Ino {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ownedByUs reports whether a file, not followed if it is a link, belongs to
// our user.
func ownedByUs(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && int(st.Uid) == os.Geteuid()
}
