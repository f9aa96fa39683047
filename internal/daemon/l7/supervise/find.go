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
		masters, executing := search(dir)
		if len(masters) > 0 || !executing {
			return masters
		}
		time.Sleep(searchTime)
	}
	return nil
}

// search once. executing: there are workers, and their master executes itself.
func search(dir string) (masters []int, executing bool) {
	parents := map[int]int{}
	for _, pid := range processes(dir) {
		_, parents[pid] = stat(pid)
	}
	for pid, of := range parents {
		// Workers have the same command line.
		if _, worker := parents[of]; worker {
			continue
		}
		if executes(of, pid) {
			executing = true
		} else if ours(pid) {
			masters = append(masters, pid)
		}
	}
	slices.Sort(masters)
	return masters, executing
}

// processes are those of HAProxy of a directory.
func processes(dir string) (pids []int) {
	proc, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range proc {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && is(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// executes is true if a worker's parent is a master that executes itself: it has the worker's name,
// which the process that an orphan gets as its parent has not.
func executes(parent, worker int) bool {
	name, _ := stat(parent)
	own, _ := stat(worker)
	return name != "" && name == own
}

// endOrphans kills what is left of a directory's HAProxy whose master has ended. Workers notice that
// themselves, in a busy one only after a while, in which they would accept connections, and lose them.
func endOrphans(dir string) (ended []int) {
	for _, pid := range processes(dir) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		// The number may have become that of another process before there was a descriptor of it.
		if _, of := stat(pid); is(pid, dir) && here(pid) && !executes(of, pid) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
			ended = append(ended, pid)
		}
		_ = unix.Close(fd)
	}
	return ended
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
	return unix.Stat(path, &info) == nil && int(info.Uid) == os.Geteuid() && here(pid)
}

// here is true if a process belongs to this network namespace.
func here(pid int) bool {
	theirs, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/net"))
	if err != nil {
		return false
	}
	own, err := os.Readlink("/proc/thread-self/ns/net")
	return err == nil && own == theirs
}

// stat is the name of a process's program, and the process's parent; 0: it has ended.
func stat(pid int) (name string, parent int) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0
	}
	// The name may have spaces and parentheses.
	begin, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if begin < 0 || end < begin {
		return "", 0
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return string(text[begin+1 : end]), parent
}
