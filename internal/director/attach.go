// SPDX-License-Identifier: Apache-2.0

package director

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"imbang/internal/bpfobj"
)

// Hook is where in the kernel the programs are attached. Both hooks are at
// the ingress and the egress of a device, and take the same programs and
// return codes.
type Hook string

const (
	HookAuto   Hook = "auto"   // tcx where the kernel has it, else clsact
	HookTCX    Hook = "tcx"    // Linux 6.6; behind it come other tcx programs
	HookClsact Hook = "clsact" // behind it come filters of later priorities
)

// Hooks are those that can be asked for.
var Hooks = []Hook{HookAuto, HookTCX, HookClsact}

// AttachAgain is the remedy when a device is gone: services and connections stay.
const AttachAgain = "imbang detach --keep-table && imbang attach --client-dev DEV --server-dev DEV"

// Attachment is a program on a device.
type Attachment struct {
	Role   string `json:"role"` // "client" or "server"; "local" is on the way out
	Device string `json:"device"`
	Index  int    `json:"ifindex"`
	Hook   Hook   `json:"hook"` // not HookAuto; also HookXDP and HookXDPGeneric
}

// place is where on a device a program is attached.
type place struct {
	side string // sideClient or sideServer
	out  bool   // on the way out, where answers of a local server pass
	xdp  bool   // before the kernel has the packet
}

const (
	sideClient = "client"
	sideServer = "server"
	roleLocal  = "local"
)

func (p place) role() string {
	if p.out {
		return roleLocal
	}
	return p.side
}

// Attach puts the packet programs on the clients' and on the servers' device,
// on their ingress and for the director's own answers on their egress; one
// device may be both. A director that is attached
// already is refused, and nothing changes when an error is returned. It is to
// be called in the director's network namespace, as Attachments and Detach.
func (d *Director) Attach(clientDev, serverDev string, hook Hook) error {
	return d.exclusively(func() error { return d.attach(clientDev, serverDev, hook) })
}

func (d *Director) attach(clientDev, serverDev string, hook Hook) error {
	client, err := ethernet(clientDev)
	if err != nil {
		return err
	}
	server, err := ethernet(serverDev)
	if err != nil {
		return err
	}
	if now, err := d.Attachments(); err != nil {
		return err
	} else if len(now) > 0 {
		return fmt.Errorf("the director is attached to %s already (imbang detach --keep-table takes it off; services and connections stay)", now[0].Device)
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Errorf("this kernel has no BPF classifiers (CONFIG_NET_CLS_BPF): %w", err)
	}
	// Of a director whose pins were removed by hand.
	if err := detachClsact(); err != nil {
		return err
	}
	if err := d.decelerate(); err != nil {
		return err
	}
	// Before a classifier of ours is on the way out.
	if err := errors.Join(d.passPeers(client.Index, server.Index), d.noteOneDevice(client.Index == server.Index)); err != nil {
		return err
	}
	err = d.attachDevice(hook, sideClient, client, d.progs.LbClient)
	// One program on a device that is both finds either half by itself.
	if err == nil && client.Index != server.Index {
		err = d.attachDevice(hook, sideServer, server, d.progs.LbServer)
	}
	if err != nil {
		return errors.Join(err, detachAll(d.dir))
	}
	return nil
}

// Gone lists the sides, client or server, whose device the director was attached to and is
// no more: the device was removed, perhaps to be made again, and its programs went with
// it. It is empty if the director is attached to no device at all.
func (d *Director) Gone(now []Attachment) (sides []string, err error) {
	if len(now) == 0 {
		return nil, nil
	}
	set, err := d.config()
	if err != nil {
		return nil, err
	}
	for _, side := range []string{sideClient, sideServer} {
		if side == sideServer && set.OneDevice != 0 {
			continue
		}
		if !slices.ContainsFunc(now, func(a Attachment) bool { return a.Role == side }) {
			sides = append(sides, side)
		}
	}
	return sides, nil
}

// noteOneDevice says whether servers' answers come in where clients' packets do.
func (d *Director) noteOneDevice(one bool) error {
	return d.changeConfig(func(set *bpfobj.LbSettings) {
		set.OneDevice = 0
		if one {
			set.OneDevice = 1
		}
	})
}

// attachDevice attaches to one device, both ways.
func (d *Director) attachDevice(hook Hook, side string, dev *net.Interface, in *ebpf.Program) error {
	err := d.attachOne(hook, place{side: side}, dev, in)
	if err == nil {
		err = d.attachOne(hook, place{side: side, out: true}, dev, d.progs.LbLocal)
	}
	if err != nil {
		return fmt.Errorf("device %s: attach: %w", dev.Name, err)
	}
	return nil
}

func (d *Director) attachOne(hook Hook, at place, dev *net.Interface, prog *ebpf.Program) error {
	err := ebpf.ErrNotSupported
	if hook != HookClsact {
		err = d.attachTCX(at, dev, prog)
	}
	if hook != HookTCX && errors.Is(err, ebpf.ErrNotSupported) {
		err = attachClsact(at, dev, prog)
	}
	return err
}

// ethernet finds a device that carries Ethernet frames.
func ethernet(name string) (*net.Interface, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("no such device %q in this network namespace (ip link shows them)", name)
	}
	if dev.Flags&net.FlagLoopback != 0 || len(dev.HardwareAddr) != 6 {
		return nil, fmt.Errorf("device %s does not carry Ethernet frames", name)
	}
	return dev, nil
}

// Attachments lists the live attachments, clients' first.
func (d *Director) Attachments() ([]Attachment, error) {
	all, err := d.linkAttachments()
	if err != nil {
		return nil, err
	}
	more, err := d.clsactAttachments()
	if err != nil {
		return nil, err
	}
	all = append(all, more...)
	for i := range all {
		all[i].Device = fmt.Sprintf("#%d", all[i].Index)
		if dev, err := net.InterfaceByIndex(all[i].Index); err == nil {
			all[i].Device = dev.Name
		}
	}
	slices.SortFunc(all, func(a, b Attachment) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Hook, b.Hook))
	})
	return all, nil
}

// detachAll takes the programs off their devices, whatever hook they are at.
func detachAll(dir string) error {
	return errors.Join(detachLinks(dir, linkPrefix+"*"), detachClsact())
}

// Detach takes the programs off their devices. With purge the director goes
// too: tables, counters and connections.
func Detach(purge bool) error {
	in, err := currentInstance()
	if err != nil {
		return err
	}
	lock, err := in.lock(false)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(in.dir()); errors.Is(err, os.ErrNotExist) {
		_ = os.Remove(lock.Name()) // of a load that failed
		return ErrNotLoaded
	}
	// Before the pins: a classifier keeps its program running without them.
	if err := detachAll(in.dir()); err != nil {
		return err
	}
	// An interrupted upgrade has pins of the same attachments beside.
	if err := detachLinks(in.dir()+nextSuffix, linkPrefix+"*"); err != nil {
		return err
	}
	if purge {
		if err := errors.Join(removePins(in.dir()+nextSuffix), removePins(in.dir())); err != nil {
			return err
		}
		_ = os.Remove(lock.Name())
		in.sweep()
		return nil
	}
	return nil
}
