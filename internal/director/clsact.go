// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"imbang/internal/host"
)

// The names of classifiers, as tc shows them: imbang/client, imbang/server,
// imbang/local.
const classifierPrefix = "imbang/"

func attachClsact(at place, dev *net.Interface, prog *ebpf.Program) error {
	way := host.Ingress
	if at.out {
		way = host.Egress
	}
	err := host.AddClassifier(classifierPrefix+at.role(), dev.Index, way, prog.FD())
	if errors.Is(err, host.ErrNoEgress) {
		return nil // clients and servers elsewhere do without
	}
	return err
}

// clsactAttachments lists classifiers of this director's own programs.
func (d *Director) clsactAttachments() ([]Attachment, error) {
	found, err := host.Classifiers(classifierPrefix)
	if err != nil {
		return nil, err
	}
	var all []Attachment
	for _, c := range found {
		role := strings.TrimPrefix(c.Name, classifierPrefix)
		own, err := d.owns(c.Program)
		if err != nil {
			return nil, err
		}
		if own {
			all = append(all, Attachment{Role: role, Index: c.Device, Hook: HookClsact})
		}
	}
	return all, nil
}

// owns reports whether a program, by the kernel's number, is of this director.
func (d *Director) owns(program int) (bool, error) {
	for _, p := range []*ebpf.Program{d.progs.LbClient, d.progs.LbServer, d.progs.LbLocal} {
		info, err := p.Info()
		if err != nil {
			return false, fmt.Errorf("program: %w", err)
		}
		if id, ok := info.ID(); ok && int(id) == program {
			return true, nil
		}
	}
	return false, nil
}

// detachClsact removes every classifier of a director in this network
// namespace. There is one director, so others are what one left whose pins
// were removed by hand.
func detachClsact() error {
	all, err := host.Classifiers(classifierPrefix)
	if err != nil {
		return fmt.Errorf("detach: %w", err)
	}
	// The last added first: a qdisc was made for the first.
	for _, c := range slices.Backward(all) {
		if err := host.RemoveClassifier(c); err != nil {
			return fmt.Errorf("detach: %w", err)
		}
	}
	return nil
}
