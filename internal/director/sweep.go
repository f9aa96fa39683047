// SPDX-License-Identifier: Apache-2.0

package director

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// sweep removes the directors of network namespaces that are gone: they had
// attachments, and every one has lost its device. A director that was never
// attached is left alone, its namespace may well live. At last the state
// directory goes, if nobody uses it.
func (in instance) sweep() {
	bpf := filepath.Join(in.base(), "bpf")
	entries, err := os.ReadDir(bpf)
	if err != nil {
		return
	}
	left := 0
	for _, e := range entries {
		if !e.IsDir() { // maps.debug and progs.debug are the kernel's own
			continue
		}
		dir := filepath.Join(bpf, e.Name())
		if orphaned(dir) && removePins(dir) == nil {
			_ = os.Remove(filepath.Join(in.base(), e.Name()+".lock"))
			continue
		}
		left++
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
		point := filepath.Join(stateDir, "bpf")
		if err := unix.Unmount(point, 0); err != nil {
			return err
		}
		if err := os.Remove(point); err != nil {
			return err
		}
		return os.Remove(stateDir) // fails if another's lock file is there
	})
}

func orphaned(dir string) bool {
	pins, err := filepath.Glob(filepath.Join(dir, linkPrefix+"*"))
	if err != nil || len(pins) == 0 {
		return false
	}
	for _, pin := range pins {
		l, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			return false
		}
		index := attachedTo(l)
		l.Close()
		if index != 0 {
			return false
		}
	}
	return !strings.HasSuffix(dir, "-new")
}
