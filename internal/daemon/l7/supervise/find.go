// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// arguments of HAProxy, without its name. They name the directory, and so identify it. HAProxy
// inserts others before them when it executes itself for a reload.
func arguments(dir string) []string {
	return []string{"-W", "-S", MasterSocket(dir) + ",mode,600", "-f", filepath.Join(dir, running, ConfigFile)}
}

// While a master executes itself, it has no command line for a moment; its workers have.
const (
	searches   = 100
	searchTime = 10 * time.Millisecond
)

// find returns the master processes of a directory: more than one only if something went
// wrong. It reads /proc, since a supervisor that is killed after it started HAProxy has had no
// time to write down anything.
func find(dir string) (masters []int) {
	for range searches {
		masters, workers := search(dir)
		if len(masters) > 0 || !workers {
			return masters
		}
		time.Sleep(searchTime)
	}
	return nil
}

// search once.
func search(dir string) (masters []int, workers bool) {
	proc, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	parents := map[int]int{}
	for _, entry := range proc {
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && is(pid, dir) {
			parents[pid] = parent(pid)
		}
	}
	for pid, of := range parents {
		// Workers have the same command line.
		if _, worker := parents[of]; !worker && ours(pid) {
			masters = append(masters, pid)
		}
	}
	slices.Sort(masters)
	return masters, len(parents) > 0
}

// Owns reports whether a process is HAProxy of a directory: its master, or one of its workers.
func Owns(pid int, dir string) bool { return is(pid, dir) }

// is true if a process is HAProxy of a directory. A process that has ended has no command
// line.
func is(pid int, dir string) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	return bytes.Contains(text, []byte("\x00"+strings.Join(arguments(dir), "\x00")+"\x00"))
}

// ours is true if a process belongs to root and to this network namespace: any user could
// start one with such a command line.
func ours(pid int) bool {
	var info unix.Stat_t
	path := filepath.Join("/proc", strconv.Itoa(pid))
	if unix.Stat(path, &info) != nil || int(info.Uid) != os.Geteuid() {
		return false
	}
	theirs, err := os.Readlink(filepath.Join(path, "ns/net"))
	if err != nil {
		return false
	}
	own, err := os.Readlink("/proc/thread-self/ns/net")
	return err == nil && own == theirs
}

// parent of a process; 0: it has ended.
func parent(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The name before may have spaces and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	of, _ := strconv.Atoi(fields[1])
	return of
}
