// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
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
	own := filepath.Join(in.base(), "bpf", cookie)
	if err != nil || (!unfinished && (attachedElsewhere(own) || attachedElsewhere(own+nextSuffix) || lives(string(text)))) || removePins(dir) != nil {
		return false
	}
	if unfinished {
		return true
	}
	// The lock goes with the last of them: without it neither could be removed.
	if removePins(own+nextSuffix) != nil || removePins(own) != nil {
		return false
	}
	_ = os.Remove(name)
	return true
}

// lives reports whether a network namespace, by its inode number, has a thread in it, a descriptor,
// or a name in the mount namespace of any process. It is taken for alive when that is unknown.
func lives(inode string) bool {
	if inode == "" {
		return true
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return true
	}
	mark := "net:[" + inode + "]"
	in := func(path string) bool { to, err := os.Readlink(path); return err == nil && to == mark }
	open := func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "ino:\t"+inode+"\n")
	}
	read := map[string]bool{} // the mounts of a mount namespace
	for _, process := range processes {
		threads, _ := filepath.Glob(process + "/task/*/ns/net")
		files, _ := filepath.Glob(process + "/fdinfo/*")
		if slices.ContainsFunc(threads, in) || slices.ContainsFunc(files, open) {
			return true
		}
		space, err := os.Readlink(process + "/ns/mnt")
		if err != nil || read[space] {
			continue
		}
		mounts, err := os.ReadFile(process + "/mountinfo")
		if strings.Contains(string(mounts), mark) {
			return true
		}
		read[space] = err == nil
	}
	return false
}

// attachedElsewhere reports whether a device is left that a director is attached to by tcx. A
// device of a namespace that is gone may have returned to this one, with its programs: it is no
// sign of life.
func attachedElsewhere(dir string) bool {
	pins, _ := filepath.Glob(filepath.Join(dir, linkPrefix+"*"))
	return slices.ContainsFunc(pins, func(pin string) bool {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return false
		}
		defer l.Close()
		info, err := l.Info()
		if err != nil || info.TCX() == nil || info.TCX().Ifindex == 0 {
			return false
		}
		here, err := link.QueryPrograms(link.QueryOptions{Target: int(info.TCX().Ifindex), Attach: ebpf.AttachType(info.TCX().AttachType)})
		return err != nil || !slices.ContainsFunc(here.Programs, func(p link.AttachedProgram) bool {
			id, ok := p.LinkID()
			return ok && id == info.ID
		})
	})
}
