// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/host"
)

// How attachments of XDP are listed: by the driver, or behind it.
const (
	HookXDP        Hook = "xdp"
	HookXDPGeneric Hook = "xdpgeneric"
)

// AttachMode is Attach with XDP programs in front of the classifiers, if the
// mode asks for them; it says what it chose. Nothing is attached when an error
// is returned.
func (d *Director) AttachMode(clientDev, serverDev string, hook Hook, mode Mode) (Choice, error) {
	pair, choice, err := chosen(clientDev, serverDev, mode)
	if err != nil {
		return Choice{}, err
	}
	err = d.exclusively(func() error {
		if err := d.attach(clientDev, serverDev, hook); err != nil || choice.Mode == ModeTC {
			return err
		}
		err := d.accelerate(pair, choice.Mode)
		if err != nil && mode == ModeAuto {
			choice = Choice{ModeTC, err.Error()}
			return detachXDP(d.dir)
		}
		if err != nil {
			return errors.Join(err, detachAll(d.dir))
		}
		return nil
	})
	if err != nil {
		return Choice{}, err
	}
	return choice, nil
}

// CheckMode refuses devices, and a mode on them, for what AttachMode would refuse them
// before it attaches anything.
func CheckMode(clientDev, serverDev string, mode Mode) error {
	if err := needRoot(); err != nil {
		return err
	}
	_, _, err := chosen(clientDev, serverDev, mode)
	return err
}

// chosen is what a mode that is asked for comes to on two devices.
func chosen(clientDev, serverDev string, mode Mode) (pair, Choice, error) {
	both, err := pairOf(clientDev, serverDev)
	if err != nil {
		return nil, Choice{}, err
	}
	var natures []nature
	if mode != ModeTC {
		if natures, err = both.natures(); err != nil {
			return nil, Choice{}, err
		}
	}
	choice, err := choose(mode, natures, triedDrivers)
	return both, choice, err
}

// device is one that the director is attached to, and its side.
type device struct {
	net.Interface
	side string
}

// pair is the clients' and the servers' device, which may be one.
type pair []device

func pairOf(clientDev, serverDev string) (pair, error) {
	client, err := ethernet(clientDev)
	if err != nil {
		return nil, err
	}
	server, err := ethernet(serverDev)
	if err != nil {
		return nil, err
	}
	p := pair{{*client, sideClient}}
	if server.Index != client.Index {
		p = append(p, device{*server, sideServer})
	}
	return p, nil
}

func (p pair) natures() ([]nature, error) {
	var all []nature
	for _, dev := range p {
		n, err := natureOf(dev)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// accelerate attaches the XDP programs and lets them send by the devices.
func (d *Director) accelerate(p pair, mode Mode) error {
	if err := d.want(partXDP); err != nil {
		return err
	}
	var devices [2]bpfobj.LbXdpDevice
	for i, dev := range p {
		if err := d.attachXDP(dev, mode); err != nil {
			return err
		}
		devices[i] = dev.settings()
		if mode == ModeXDPGeneric {
			devices[i].Turns = 1
			continue
		}
		n, err := natureOf(dev)
		if err != nil {
			return err
		}
		if why := n.unableNative(true); why != "" {
			return fmt.Errorf("native XDP is not possible: %s", why)
		}
		// A veth sends back only to a peer that has a program, too.
		if n.driver != vethDriver {
			devices[i].Turns = 1
		}
	}
	return d.changeConfig(func(set *bpfobj.LbSettings) { set.Xdp = devices })
}

func (dev device) settings() bpfobj.LbXdpDevice {
	return bpfobj.LbXdpDevice{Ifindex: uint32(dev.Index), Mac: [6]uint8(dev.HardwareAddr)}
}

// pretendXDP lets the XDP programs work on devices that they are not attached
// to: for packets that are put into them.
func (d *Director) pretendXDP(clientDev, serverDev string) error {
	if err := d.want(partXDP); err != nil {
		return err
	}
	p, err := pairOf(clientDev, serverDev)
	if err != nil {
		return err
	}
	return d.changeConfig(func(set *bpfobj.LbSettings) {
		for i, dev := range p {
			set.Xdp[i] = dev.settings()
		}
	})
}

// decelerate tells the classifiers that there is no XDP in front of them.
func (d *Director) decelerate() error {
	return d.changeConfig(func(set *bpfobj.LbSettings) { set.Xdp = [2]bpfobj.LbXdpDevice{} })
}

// ExpectsMAC reports whether the XDP programs take packets for a device's
// hardware address, as it now is.
func (d *Director) ExpectsMAC(dev net.Interface) (bool, error) {
	set, err := d.config()
	if err != nil {
		return false, err
	}
	for _, x := range set.Xdp {
		if x.Ifindex == uint32(dev.Index) {
			return len(dev.HardwareAddr) == len(x.Mac) && x.Mac == [6]uint8(dev.HardwareAddr), nil
		}
	}
	return true, nil // there are none on it
}

// attachXDP pins the link, as attachTCX does.
func (d *Director) attachXDP(dev device, mode Mode) error {
	prog, flags := d.progs.LbXdpClient, link.XDPDriverMode
	if dev.side == sideServer {
		prog = d.progs.LbXdpServer
	}
	if mode == ModeXDPGeneric {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Index, Flags: flags})
	if err != nil {
		return fmt.Errorf("device %s: attach XDP: %w", dev.Name, explainXDP(dev, err))
	}
	defer l.Close()
	path := filepath.Join(d.dir, place{side: dev.side, xdp: true}.pin())
	_ = os.Remove(path) // of a device that is gone
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("pin the attachment: %w", err)
	}
	return nil
}

// explainXDP says what a driver's refusal means, as far as the number tells.
func explainXDP(dev device, err error) error {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("the driver has no native XDP, or not with the offloads it has on (ethtool -K %s lro off): %w", dev.Name, err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("it has an XDP program already (ip link show %s): %w", dev.Name, err)
	case errors.Is(err, unix.ERANGE), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the driver refuses, perhaps for the MTU of %d or for LRO (ethtool -K %s lro off): %w", dev.MTU, dev.Name, err)
	}
	return err
}

// xdpHook tells how the program of a device is attached.
func xdpHook(index int) Hook {
	if generic, err := host.XDPIsGeneric(index); err == nil && generic {
		return HookXDPGeneric
	}
	return HookXDP
}

// detachXDP takes only the XDP programs away.
func detachXDP(dir string) error { return detachLinks(dir, linkPrefix+"*"+xdpSuffix) }
