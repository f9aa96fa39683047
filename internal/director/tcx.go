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

// The pins of attachments by links: link_client, link_client_out,
// link_client_xdp, link_server, ...
const (
	linkPrefix = "link_"
	outSuffix  = "_out"
	xdpSuffix  = "_xdp"
)

func (p place) pin() string {
	switch {
	case p.out:
		return linkPrefix + p.side + outSuffix
	case p.xdp:
		return linkPrefix + p.side + xdpSuffix
	}
	return linkPrefix + p.side
}

// pinnedPlace is the place that a pin is named for, if it is an attachment's.
func pinnedPlace(pin string) (place, bool) {
	side, ok := strings.CutPrefix(pin, linkPrefix)
	side, out := strings.CutSuffix(side, outSuffix)
	side, xdp := strings.CutSuffix(side, xdpSuffix)
	return place{side, out, xdp}, ok
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

// linkAttachments lists the live ones.
func (d *Director) linkAttachments() ([]Attachment, error) { return pinnedAttachments(d.dir) }

// pinnedAttachments lists the live ones of a director's directory.
func pinnedAttachments(dir string) ([]Attachment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	var all []Attachment
	for _, e := range entries {
		at, ok := pinnedPlace(e.Name())
		if !ok {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(dir, e.Name()), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue // detached meanwhile, by another command
		}
		if err != nil {
			return nil, fmt.Errorf("pinned attachment %s: %w", e.Name(), err)
		}
		index := attachedTo(l)
		l.Close()
		if index == 0 { // the device is gone, and the attachment with it
			continue
		}
		hook := HookTCX
		if at.xdp {
			hook = xdpHook(index)
		}
		all = append(all, Attachment{Role: at.role(), Index: index, Hook: hook})
	}
	return all, nil
}

// attachedTo is the device's index, 0 when it is gone.
func attachedTo(l link.Link) int {
	info, err := l.Info()
	if err != nil {
		return 0
	}
	if x := info.XDP(); x != nil {
		return int(x.Ifindex)
	}
	if t := info.TCX(); t != nil {
		return int(t.Ifindex)
	}
	return 0
}

// detachLinks detaches and removes the pins of a director's directory that a
// pattern says. Without a pin the kernel detaches by itself, but later: the
// program would still be in the way of the next attach.
func detachLinks(dir, pattern string) error {
	pins, err := filepath.Glob(filepath.Join(dir, pattern))
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
