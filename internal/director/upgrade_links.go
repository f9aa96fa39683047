// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"imbang/internal/host"
)

// relink gives the devices the new build's programs, and its directory pins of
// the attachments. Each replacement is one step of the kernel: no packet passes
// a device without a program.
func (u *upgrade) relink() error {
	entries, err := os.ReadDir(u.in.dir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		at, ok := pinnedPlace(e.Name())
		if !ok {
			continue
		}
		if err := u.relinkOne(e.Name(), at); err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return u.replaceClassifiers()
}

func (u *upgrade) relinkOne(name string, at place) error {
	l, err := link.LoadPinnedLink(filepath.Join(u.in.dir(), name), nil)
	if err != nil {
		return err
	}
	defer l.Close()
	if attachedTo(l) == 0 { // the device is gone
		return nil
	}
	prog, err := u.programAt(at)
	if err != nil {
		return err
	}
	if err := l.Update(prog); err != nil {
		return err
	}
	path := filepath.Join(u.nextDir(), name)
	if _, err := os.Stat(path); err == nil {
		return nil // an interrupted upgrade came so far
	}
	info, err := l.Info()
	if err != nil {
		return err
	}
	again, err := link.NewFromID(info.ID)
	if err != nil {
		return err
	}
	defer again.Close()
	return again.Pin(path)
}

func (u *upgrade) programAt(at place) (*ebpf.Program, error) {
	name := "lb_" + at.side
	switch {
	case at.out:
		name = "lb_local"
	case at.xdp:
		name = "lb_xdp_" + at.side
	}
	p := u.next.progs[name]
	if p == nil {
		return nil, fmt.Errorf("the new build has no program %s", name)
	}
	return p, nil
}

// replaceClassifiers does the same for classifiers of clsact, which are not
// pinned.
func (u *upgrade) replaceClassifiers() error {
	all, err := host.Classifiers(classifierPrefix)
	if err != nil {
		return err
	}
	for _, c := range all {
		role := strings.TrimPrefix(c.Name, classifierPrefix)
		prog, err := u.programAt(place{side: role, out: role == roleLocal})
		if err != nil {
			return err
		}
		if err := host.ReplaceClassifier(c, prog.FD()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
