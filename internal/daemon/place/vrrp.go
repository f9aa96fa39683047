// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// VRRP has a directory for each network namespace that has or had a process of imbang vrrp,
// which does not depend on a daemon or director.
const VRRP = "/run/imbang/vrrp"

// VRRPDir is that of the calling thread's network namespace.
func VRRPDir() (string, error) { return of(VRRP) }

// ErrVRRPRunning says that there is such a process already.
var ErrVRRPRunning = errors.New("imbang vrrp runs already in this network namespace (imbang vrrp status shows it)")

// TakeVRRP makes a directory and locks it, until the file is closed or the program ends.
func TakeVRRP(dir string) (*os.File, error) { return retake(dir, ErrVRRPRunning) }

// handoverTime is longer than a handover takes. Its directory is not locked meanwhile.
const handoverTime = time.Minute

// VRRPHandover is what a program leaves for the next one of its process.
func VRRPHandover(dir string) string { return filepath.Join(dir, "handover.json") }

// SweepVRRP removes the directories without a process.
func SweepVRRP() { sweepVRRP(VRRP) }

func sweepVRRP(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, "[0-9]*"))
	for _, dir := range dirs {
		if info, err := os.Stat(VRRPHandover(dir)); err == nil && time.Since(info.ModTime()) < handoverTime {
			continue
		}
		if f, err := take(dir, ErrVRRPRunning); err == nil {
			_ = os.RemoveAll(dir)
			f.Close()
		}
	}
}

// AdoptVRRP goes on with the lock of a directory that an earlier program of this process has
// left open; nil: the descriptor is not that.
func AdoptVRRP(dir string, fd int) *os.File {
	var locked, there unix.Stat_t
	if unix.Fstat(fd, &locked) != nil || unix.Stat(filepath.Join(dir, "lock"), &there) != nil || locked.Dev != there.Dev || locked.Ino != there.Ino {
		return nil
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // of a descriptor that is another one
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "lock")
}

// InheritVRRP goes on with the lock of a directory that an earlier program of this process has
// left open; nil: there is none. It is found by itself, as what the program has written may not
// be readable. Other descriptors close when a program is executed.
func InheritVRRP(dir string) *os.File {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if f := AdoptVRRP(dir, fd); f != nil {
			return f
		}
	}
	return nil
}
