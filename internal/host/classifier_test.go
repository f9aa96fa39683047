// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

const owner = "hosttest/"

// device is an eth0 in a namespace of its own, and a program for it.
type device struct {
	*testing.T
	ns      *host.Namespace
	index   int
	program *ebpf.Program
}

func newDevice(t *testing.T) *device {
	d := &device{T: t, ns: testenv.Namespace(t, "cls")}
	err := host.Connect(host.End{NS: d.ns, Name: "eth0"}, host.End{NS: d.ns, Name: "eth1"}, host.LinkOptions{})
	if err == nil {
		d.index, err = d.ns.LinkIndex("eth0")
	}
	if err != nil {
		t.Fatal(err)
	}
	d.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
		License:      "GPL",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.program.Close() })
	return d
}

func (d *device) do(fns ...func() error) {
	d.Helper()
	for _, fn := range fns {
		if err := d.ns.Do(fn); err != nil {
			d.Fatal(err)
		}
	}
}

func (d *device) add() error {
	return host.AddClassifier(owner+"eth0", d.index, host.Ingress, d.program.FD())
}

func (d *device) addOut() error {
	return host.AddClassifier(owner+"out", d.index, host.Egress, d.program.FD())
}

// removeAll removes whatever is the owner's.
func (d *device) removeAll() error {
	all, err := host.Classifiers(owner)
	for _, c := range slices.Backward(all) {
		if err == nil {
			err = host.RemoveClassifier(c)
		}
	}
	return err
}

// want compares what the device has: the kinds of its qdiscs, and the filters
// of both directions as name or priority.
func (d *device) want(want ...string) {
	d.Helper()
	var got []string
	d.do(func() error {
		link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: d.index}}
		qdiscs, err := netlink.QdiscList(link)
		if err != nil {
			return err
		}
		for _, q := range qdiscs {
			if q.Type() != "noqueue" {
				got = append(got, q.Type())
			}
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := netlink.FilterList(link, parent)
			if err != nil {
				return err
			}
			for _, f := range filters {
				got = append(got, f.(*netlink.BpfFilter).Name)
			}
		}
		return nil
	})
	if !slices.Equal(got, want) {
		d.Errorf("the device has %v, want %v", got, want)
	}
}

// qdisc and filter are what other programs do to the device.
func (d *device) qdisc(kind string) func() error {
	return func() error {
		return netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: kind, QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: d.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
	}
}

func (d *device) filter(name string, parent uint32, priority uint16) func() error {
	return func() error {
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: d.index, Parent: parent, Priority: priority, Handle: 1, Protocol: unix.ETH_P_ALL},
			Fd:          d.program.FD(), Name: name, DirectAction: true,
		})
	}
}

// The qdisc goes with the classifier that it was made for, and not while
// anybody else uses it; what others made stays.
func TestClassifierAmongOthers(t *testing.T) {
	const in, out = netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS
	for _, c := range []struct {
		name          string
		before, after func(d *device) []func() error // ours is added between
		with, left    []string
	}{
		{name: "alone", with: []string{"clsact", owner + "eth0 (with its clsact)"}},
		{
			name:   "another's empty clsact",
			before: func(d *device) []func() error { return []func() error{d.qdisc("clsact")} },
			with:   []string{"clsact", owner + "eth0"}, left: []string{"clsact"},
		},
		{
			name: "another's clsact and filters",
			before: func(d *device) []func() error {
				return []func() error{d.qdisc("clsact"), d.filter("first", in, 1), d.filter("last", in, 49152), d.filter("out", out, 18754)}
			},
			with: []string{"clsact", "first", owner + "eth0", "last", "out"}, left: []string{"clsact", "first", "last", "out"},
		},
		{
			name:   "another's ingress",
			before: func(d *device) []func() error { return []func() error{d.qdisc("ingress"), d.filter("first", in, 1)} },
			// Without an egress the kernel shows the ingress for it.
			with: []string{"ingress", "first", owner + "eth0", "first", owner + "eth0"}, left: []string{"ingress", "first", "first"},
		},
		{
			name:  "another's filter came later",
			after: func(d *device) []func() error { return []func() error{d.filter("last", in, 49152)} },
			with:  []string{"clsact", owner + "eth0 (with its clsact)", "last"}, left: []string{"clsact", "last"},
		},
		{
			name:  "another's filter of the way out came later",
			after: func(d *device) []func() error { return []func() error{d.filter("out", out, 7)} },
			with:  []string{"clsact", owner + "eth0 (with its clsact)", "out"}, left: []string{"clsact", "out"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDevice(t)
			if c.before != nil {
				d.do(c.before(d)...)
			}
			d.do(d.add)
			if c.after != nil {
				d.do(c.after(d)...)
			}
			d.want(c.with...)
			d.do(d.removeAll)
			d.want(c.left...)
		})
	}
}

// One of the way out shares the qdisc, which stays for it; another's qdisc of
// kind ingress has no such way.
func TestClassifiersBothWays(t *testing.T) {
	d := newDevice(t)
	d.do(d.add, d.addOut)
	d.want("clsact", owner+"eth0 (with its clsact)", owner+"out")
	if err := d.ns.Do(d.addOut); err == nil || !strings.Contains(err.Error(), "another filter has priority 18754") {
		t.Errorf("added twice: %v", err)
	}
	d.do(d.removeAll)
	d.want()

	d.do(d.addOut)
	d.want("clsact", owner+"out (with its clsact)")
	d.do(d.removeAll)
	d.want()

	d.do(d.qdisc("ingress"), d.add)
	if err := d.ns.Do(d.addOut); !errors.Is(err, host.ErrNoEgress) {
		t.Errorf("added where there is no way out: %v", err)
	}
	d.do(func() error {
		all, err := host.Classifiers(owner)
		if len(all) != 1 {
			t.Errorf("classifiers: %v, want one", all)
		}
		return err
	}, d.removeAll)
	d.want("ingress")
}

// What is listed says whose program is where.
func TestClassifiers(t *testing.T) {
	d := newDevice(t)
	info, err := d.program.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	want := func(want ...string) {
		t.Helper()
		d.do(func() error {
			all, err := host.Classifiers(owner)
			var got []string
			for _, c := range all {
				got = append(got, fmt.Sprint(c.Name, " ", c.Device, " ", c.Program))
			}
			if !slices.Equal(got, want) {
				t.Errorf("classifiers %v, want %v", got, want)
			}
			return err
		})
	}
	want()
	d.do(d.add, d.filter(owner+"of another priority", netlink.HANDLE_MIN_INGRESS, 5))
	want(fmt.Sprint(owner, "eth0 ", d.index, " ", id))
	if err := d.ns.Do(d.add); err == nil || !strings.Contains(err.Error(), "another filter has priority 18754") {
		t.Errorf("added twice: %v", err)
	}

	// What was listed may be gone when it is to be removed.
	var listed []host.Classifier
	d.do(func() (err error) { listed, err = host.Classifiers(owner); return err })
	remove := func() error { return host.RemoveClassifier(listed[0]) }
	d.do(remove, remove)
	want()
	d.do(d.add)
	if err := d.ns.DeleteLink("eth0"); err != nil {
		t.Fatal(err)
	}
	want()
	d.do(remove)
	if err := d.ns.Do(d.add); err == nil {
		t.Error("added to a device that is gone")
	}
}

// Where the classifier cannot be added, no qdisc is left.
func TestClassifierRefused(t *testing.T) {
	d := newDevice(t)
	l, err := net.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := d.ns.Do(func() error { return host.AddClassifier(owner, d.index, host.Ingress, int(f.Fd())) }); err == nil {
		t.Error("a socket was taken for a program")
	}
	d.want()
}
