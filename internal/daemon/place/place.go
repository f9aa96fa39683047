// SPDX-License-Identifier: Apache-2.0

// Package place says where a daemon keeps its socket and what it knows, by network
// namespace: there is one daemon for a director.
package place

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/sync/running"
	"imbang/internal/host"
)

// Base has a directory for each network namespace that has or had a daemon. It goes
// with the machine's next start.
const Base = "/run/imbang/daemon"

// State is what survives that.
const State = "/var/lib/imbang"

// Dir is the directory of the calling thread's network namespace.
func Dir() (string, error) { return of(Base) }

func of(base string) (string, error) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("network namespace: %w", err)
	}
	defer unix.Close(s)
	// The kernel's number of the namespace, which it never gives twice.
	cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return "", fmt.Errorf("network namespace: the kernel gives no SO_NETNS_COOKIE (Linux 5.14 or later is needed): %w", err)
	}
	return filepath.Join(base, strconv.FormatUint(cookie, 10)), nil
}

// Socket is where the daemon of a directory listens.
func Socket(dir string) string { return filepath.Join(dir, "api.sock") }

// ErrRunning says that there is a daemon already.
var ErrRunning = errors.New("a daemon runs already in this network namespace (imbang status; stop it, or reload it with imbang reload)")

// Between tries of Take, and how many there are: a sweep of another process holds a
// directory's lock while it removes directories, for less than that on a busy machine, too.
const (
	takePause = 10 * time.Millisecond
	takeTries = 50
)

// errSwept says that the directory was removed in the meantime.
var errSwept = errors.New("the directory was removed meanwhile")

// Take makes the directory and locks it, until the file is closed or the process ends.
func Take(dir string) (f *os.File, err error) { return retake(dir, ErrRunning) }

// retake tries until the directory is not being removed.
func retake(dir string, runs error) (f *os.File, err error) {
	for range takeTries {
		if f, err = take(dir, runs); err == nil || !errors.Is(err, runs) && !errors.Is(err, errSwept) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrExist) {
			return f, err
		}
		time.Sleep(takePause)
	}
	return nil, err
}

// take tries once. The error of a directory that Sweep removes at that time is runs,
// errSwept, or one of a file that is not there, or was a moment ago, depending on how far it
// has come.
func take(dir string, runs error) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", host.AsRoot(err))
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, runs
		}
		return nil, fmt.Errorf("state directory: lock: %w", err)
	}
	// A lock of a file that was removed since excludes no other process.
	locked, err := f.Stat()
	there, err2 := os.Stat(path)
	if err := errors.Join(err, err2); err != nil || !os.SameFile(locked, there) {
		f.Close()
		return nil, fmt.Errorf("state directory: %w", cmp.Or(err, errSwept))
	}
	return f, nil
}

// Sweep removes the directories of network namespaces that have neither a daemon nor a
// director any more, nor a process that synchronizes connections.
func Sweep() {
	dirs, _ := filepath.Glob(filepath.Join(Base, "[0-9]*"))
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(filepath.Dir(Base), filepath.Base(dir)+".lock")); err == nil {
			continue
		}
		if roles, err := running.List(dir); err != nil || len(roles) > 0 {
			continue
		}
		if f, err := take(dir, ErrRunning); err == nil {
			_ = os.RemoveAll(dir)
			f.Close()
		}
	}
}
