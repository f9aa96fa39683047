// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sign writes into the lock file which network namespace the director is of, by
// its inode number: as /proc and the mount table show it, to tell whether it
// still lives.
func (in instance) sign(lock *os.File) error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if _, err := lock.WriteAt([]byte(strconv.FormatUint(st.Ino, 10)), 0); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// sweep removes the directors of network namespaces that are gone, and what a
// load that was killed left behind. At last the state directory goes, if
// it is not in use.
func (in instance) sweep() {
	bpf := filepath.Join(in.base(), "bpf")
	dirs, err := filepath.Glob(filepath.Join(bpf, "[0-9]*"))
	if err != nil {
		return
	}
	left := 0
	for _, dir := range dirs {
		if !in.sweepOne(dir) {
			left++
		}
	}
	if left > 0 {
		return
	}
	// A director that is just being loaded holds this lock: leave all to it.
	base, err := os.Open(in.base())
	if err != nil {
		return
	}
	defer base.Close()
	if flock(base, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	if dirs, err := filepath.Glob(filepath.Join(bpf, "[0-9]*")); err != nil || len(dirs) > 0 {
		return
	}
	// All of it where the mount is: elsewhere a copy of it may still cover
	// the directory, which can then not be removed.
	_ = in.atHome(func() error {
		point := filepath.Join(StateDir, "bpf")
		if err := unix.Unmount(point, 0); err != nil {
			return err
		}
		if err := os.Remove(point); err != nil {
			return err
		}
		return os.Remove(StateDir) // fails if another's lock file is there
	})
}

// sweepOne removes a director's pins if its network namespace is gone, or if
// they are half a load's; it reports whether nothing is left of them. A process
// that holds the director's lock is working on it.
func (in instance) sweepOne(dir string) bool {
	cookie, unfinished := strings.CutSuffix(filepath.Base(dir), newSuffix)
	cookie, _ = strings.CutSuffix(cookie, nextSuffix) // an upgrade's: it goes with its director
	name := filepath.Join(in.base(), cookie+".lock")
	lock, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		_, err := os.Stat(dir) // its director's sweep took it along
		return os.IsNotExist(err)
	}
	defer lock.Close()
	if flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil || !stillThere(lock) {
		return false
	}
	text, err := os.ReadFile(name)
	if err != nil || (!unfinished && in.lives(string(text))) || removePins(dir) != nil {
		return false
	}
	if unfinished {
		return true
	}
	// The lock goes with the last of them: without it neither could be removed.
	own := filepath.Join(in.base(), "bpf", cookie)
	if removePins(own+nextSuffix) != nil || removePins(own) != nil {
		return false
	}
	_ = os.Remove(name)
	return true
}

// lives reports whether a network namespace, by its inode number, has a
// process in it or a name. It is taken for alive when that is unknown.
func (in instance) lives(inode string) bool {
	if inode == "" {
		return true
	}
	mark := "net:[" + inode + "]"
	spaces, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return true
	}
	for _, path := range spaces {
		if ns, err := os.Readlink(path); err == nil && ns == mark {
			return true
		}
	}
	process := "self"
	if in.home != 0 {
		process = strconv.Itoa(in.home)
	}
	mounts, err := os.ReadFile(filepath.Join("/proc", process, "mountinfo"))
	return err != nil || strings.Contains(string(mounts), mark)
}
