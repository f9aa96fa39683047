// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder is a process that holds the lock of a director.
type Holder struct {
	PID     int // 0: not known
	Command string
	Stopped bool // by a signal or a debugger
}

// holderOf finds the process that holds the lock of a file, as the kernel has
// it (/proc/locks): nothing is written down that could be out of date.
func holderOf(f *os.File) (h Holder) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return h
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return h
	}
	defer locks.Close()
	h.PID = lockHolder(locks, unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	if h.PID == 0 {
		return h
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.PID))
	if err != nil || len(line) == 0 { // it has exited, and another has its descriptor
		return Holder{}
	}
	h.Command = strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	h.Stopped = isStopped(h.PID)
	return h
}

// lockHolder finds in the text of /proc/locks the process that has a file
// locked by flock(2), 0 if there is none. A line is "1: FLOCK ADVISORY WRITE
// 4711 00:1a:42 0 EOF", the device in hexadecimal; those who wait have "->" in
// second place.
func lockHolder(locks io.Reader, major, minor uint32, inode uint64) int {
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, inode)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 6 || words[1] != "FLOCK" || words[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(words[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}

// isStopped reports whether a process is stopped (field 3 of proc_pid_stat(5),
// behind the command in brackets).
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	behind := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(behind) > 0 && (behind[0] == "T" || behind[0] == "t")
}
