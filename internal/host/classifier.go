// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The place of our classifier among the filters of a device: a priority that
// nobody else is likely to use, behind those that people write by hand and
// before those that the kernel gives out (49152 and down).
const (
	classifierPriority = 18754
	classifierHandle   = 1
)

// withQdisc ends the name of a classifier whose qdisc was made for it. The
// mark goes where the classifier goes: with the device, or by another's hand.
const withQdisc = " (with its clsact)"

// Direction is which of a device's packets a classifier sees.
type Direction uint32

const (
	Ingress Direction = netlink.HANDLE_MIN_INGRESS
	Egress  Direction = netlink.HANDLE_MIN_EGRESS
)

// ErrNoEgress says that a device has another's qdisc of kind ingress, where
// there are no filters of the way out.
var ErrNoEgress = errors.New("the device has a qdisc of kind ingress, not clsact")

// Classifier is a BPF program among the filters of a device, in direct-action
// mode: it decides by its return code, and where that is TC_ACT_UNSPEC the
// filters behind it do. It stays until it is removed or the device goes.
// Functions here mean the calling thread's network namespace.
type Classifier struct {
	Name    string // begins with the owner's, so that nobody removes another's
	Device  int    // interface index
	Way     Direction
	Program int // the kernel's number of the program

	filter netlink.BpfFilter
}

// AddClassifier puts the program of a file descriptor on a device, whose
// clsact qdisc it makes if there is none. Other filters stay as they are.
func AddClassifier(name string, device int, way Direction, program int) error {
	qdisc := clsact(device)
	err := netlink.QdiscAdd(qdisc)
	made := err == nil
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel has no clsact qdisc (CONFIG_NET_SCH_INGRESS): %w", err)
	}
	// One of kind ingress will do as well for what comes in.
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the clsact qdisc: %w", needRoot(err))
	}
	if made {
		name += withQdisc
	} else if way == Egress {
		if err := hasEgress(device); err != nil {
			return err
		}
	}
	err = netlink.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: device,
			Parent:    uint32(way),
			Priority:  classifierPriority,
			Handle:    classifierHandle,
			Protocol:  unix.ETH_P_ALL,
		},
		Fd: program, Name: name, DirectAction: true,
	})
	if err != nil && made {
		_ = netlink.QdiscDel(qdisc) // the filter's failure is what counts
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("another filter has priority %d (tc filter show shows it): %w", classifierPriority, err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("this kernel has no BPF filters (CONFIG_NET_CLS_BPF): %w", err)
	case err != nil:
		return fmt.Errorf("add the filter: %w", needRoot(err))
	}
	return nil
}

// Classifiers lists those whose names begin with the owner's, on all devices.
func Classifiers(owner string) ([]Classifier, error) {
	qdiscs, err := untilWhole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return nil, fmt.Errorf("list qdiscs: %w", err)
	}
	var all []Classifier
	for _, q := range qdiscs {
		if q.Attrs().Parent != netlink.HANDLE_CLSACT {
			continue
		}
		ways := []Direction{Ingress, Egress}
		if q.Type() != clsactKind { // it shows its filters as those of both
			ways = ways[:1]
		}
		for _, way := range ways {
			here, err := classifiers(owner, q.Attrs().LinkIndex, way)
			if err != nil {
				return nil, err
			}
			all = append(all, here...)
		}
	}
	return all, nil
}

// classifiers lists those of one device and direction.
func classifiers(owner string, device int, way Direction) ([]Classifier, error) {
	here, err := filters(device, uint32(way))
	if err != nil {
		return nil, err
	}
	var all []Classifier
	for _, f := range here {
		bpf, ok := f.(*netlink.BpfFilter)
		if !ok || bpf.Priority != classifierPriority || !strings.HasPrefix(bpf.Name, owner) {
			continue
		}
		all = append(all, Classifier{
			Name:   strings.TrimSuffix(bpf.Name, withQdisc),
			Device: device, Way: way, Program: bpf.Id, filter: *bpf,
		})
	}
	return all, nil
}

// hasEgress looks at a device's qdisc, which there is.
func hasEgress(device int) error {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: device}}
	all, err := untilWhole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT && q.Type() != clsactKind {
			return ErrNoEgress
		}
	}
	return nil
}

// RemoveClassifier removes a listed classifier, and the qdisc that was made
// for it unless it has been given other filters. One that is gone already,
// with or without its device, is as good.
func RemoveClassifier(c Classifier) error {
	f := c.filter
	f.LinkIndex, f.Parent, f.Fd = c.Device, uint32(c.Way), -1
	if err := netlink.FilterDel(&f); err != nil && !gone(err) {
		return fmt.Errorf("remove the filter %s: %w", c.Name, needRoot(err))
	}
	if !strings.HasSuffix(c.filter.Name, withQdisc) {
		return nil
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if others, err := filters(c.Device, parent); err != nil || len(others) > 0 {
			return err
		}
	}
	if err := netlink.QdiscDel(clsact(c.Device)); err != nil && !gone(err) {
		return fmt.Errorf("remove the clsact qdisc: %w", needRoot(err))
	}
	return nil
}

// The kind of qdisc that has filters of both directions.
const clsactKind = "clsact"

func clsact(device int) netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: device,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}}
}

// filters lists a device's filters of one direction; none of one that is gone.
func filters(device int, parent uint32) ([]netlink.Filter, error) {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: device}}
	all, err := untilWhole(func() ([]netlink.Filter, error) { return netlink.FilterList(link, parent) })
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	return all, nil
}

// untilWhole lists again what changed while it was listed.
func untilWhole[T any](list func() ([]T, error)) (all []T, err error) {
	for range 10 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// gone: the kernel says EINVAL where there is no qdisc (any more).
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

// ReplaceClassifier puts another program in a listed classifier's place, in one
// step of the kernel.
func ReplaceClassifier(c Classifier, program int) error {
	f := c.filter
	f.LinkIndex, f.Parent, f.Fd = c.Device, uint32(c.Way), program
	if err := netlink.FilterReplace(&f); err != nil {
		if gone(err) {
			return fmt.Errorf("filter %s: %w", c.Name, os.ErrNotExist)
		}
		return fmt.Errorf("replace the filter %s: %w", c.Name, needRoot(err))
	}
	return nil
}
