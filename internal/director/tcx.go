// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// The pins of tcx attachments: link_client, link_client_out, link_server, ...
const (
	linkPrefix = "link_"
	outSuffix  = "_out"
)

func (p place) pin() string {
	if p.out {
		return linkPrefix + p.side + outSuffix
	}
	return linkPrefix + p.side
}

// pinnedPlace is the place that a pin is named for, if it is an attachment's.
func pinnedPlace(pin string) (place, bool) {
	side, ok := strings.CutPrefix(pin, linkPrefix)
	side, out := strings.CutSuffix(side, outSuffix)
	return place{side, out}, ok
}

// attachTCX pins the link: the attachment lives as long as the pin.
// ebpf.ErrNotSupported says that the kernel has no tcx.
func (d *Director) attachTCX(at place, dev *net.Interface, prog *ebpf.Program) error {
	way := ebpf.AttachTCXIngress
	if at.out {
		way = ebpf.AttachTCXEgress
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: dev.Index, Program: prog, Attach: way})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("this kernel has no tcx hook, Linux 6.6 or later is needed (--hook clsact does without): %w", err)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	path := filepath.Join(d.dir, at.pin())
	_ = os.Remove(path) // of a device that is gone
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("pin the attachment: %w", err)
	}
	return nil
}

// tcxAttachments lists the live ones.
func (d *Director) tcxAttachments() ([]Attachment, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	var all []Attachment
	for _, e := range entries {
		at, ok := pinnedPlace(e.Name())
		if !ok {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(d.dir, e.Name()), nil)
		if err != nil {
			return nil, fmt.Errorf("pinned attachment %s: %w", e.Name(), err)
		}
		index := attachedTo(l)
		l.Close()
		if index != 0 { // else the device is gone, and the attachment with it
			all = append(all, Attachment{Role: at.role(), Index: index, Hook: HookTCX})
		}
	}
	return all, nil
}

// attachedTo is the device's index, 0 when it is gone.
func attachedTo(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.TCX() == nil {
		return 0
	}
	return int(info.TCX().Ifindex)
}

// detachTCX detaches and removes the pins of a director's directory. Without
// a pin the kernel detaches by itself, but later: the program would still be
// in the way of the next attach.
func detachTCX(dir string) error {
	pins, err := filepath.Glob(filepath.Join(dir, linkPrefix+"*"))
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	for _, path := range pins {
		if l, err := link.LoadPinnedLink(path, nil); err == nil {
			err = l.Detach()
			l.Close()
			if err != nil {
				return fmt.Errorf("detach: %w", err)
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("detach: %w", err)
		}
	}
	return nil
}
