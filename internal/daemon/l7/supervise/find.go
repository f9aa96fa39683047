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

// While a master executes itself, it has no command line for a moment.
const (
	searches   = 500
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

// search once. executing: a process that may be a master executes itself.
func search(dir string) (masters []int, executing bool) {
	for pid, of := range sessions() {
		if of != pid {
			continue // no master
		}
		switch text, err := commandLine(pid); {
		case err != nil: // it has ended
		case names(text, dir) && ours(pid):
			masters = append(masters, pid)
		case len(text) == 0 && ours(pid):
			executing = true
		}
	}
	slices.Sort(masters)
	return masters, executing
}

// orphanTime is for those that were killed to end. One with much memory takes a while.
const orphanTime = time.Second

// endOrphans kills workers of a directory's HAProxy whose master has ended, and waits for their
// end. They would notice it themselves, on a busy machine only after a while, in which they accept
// connections at sockets that the next HAProxy has, too, and lose them.
func endOrphans(dir string) (killed []int) {
	var fds []int
	all := sessions()
	for pid, of := range all {
		// Other command lines are not read: that of a process that is changing its memory is waited for.
		if _, lives := all[of]; lives || !is(pid, dir) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		// The number may have become that of another process before there was a descriptor of it.
		if session(of) == 0 && session(pid) == of && is(pid, dir) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
			killed, fds = append(killed, pid), append(fds, fd)
		} else {
			_ = unix.Close(fd)
		}
	}
	end := time.Now().Add(orphanTime)
	for _, fd := range fds {
		awaitEnd(fd, int(max(0, time.Until(end).Milliseconds())))
		_ = unix.Close(fd)
	}
	slices.Sort(killed)
	return killed
}

// Owns reports whether a process is HAProxy of a directory: its master, or one of its workers.
func Owns(pid int, dir string) bool { return is(pid, dir) }

// is true if a process is HAProxy of a directory.
func is(pid int, dir string) bool {
	text, err := commandLine(pid)
	return err == nil && names(text, dir)
}

// commandLine of a process. It is empty if the process has ended or executes another program at the
// moment.
func commandLine(pid int) ([]byte, error) {
	return os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
}

// names is true if a command line is that of HAProxy of a directory.
func names(text []byte, dir string) bool {
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

// sessions are those of all processes. A master leads one, which its workers are in as well.
func sessions() map[int]int {
	all := map[int]int{}
	proc, err := os.ReadDir("/proc")
	if err != nil {
		return all
	}
	for _, entry := range proc {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if of := session(pid); of != 0 {
				all[pid] = of
			}
		}
	}
	return all
}

// session of a process, by the number of the one that leads it or has led it; 0: the process has
// ended.
func session(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The name before may have spaces and parentheses. State, parent, group, session.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	of, _ := strconv.Atoi(fields[3])
	return of
}
