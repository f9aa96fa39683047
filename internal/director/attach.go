// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
)

// The pins of attachments: link_client, link_server.
const linkPrefix = "link_"

// Attachment is a program on a device.
type Attachment struct {
	Role   string `json:"role"` // "client" or "server"
	Device string `json:"device"`
	Index  int    `json:"ifindex"`
}

// Attach puts the packet programs on the ingress of the clients' and of the
// servers' device; one device may be both. A director that is attached
// already is refused, and nothing changes when an error is returned.
func (d *Director) Attach(clientDev, serverDev string) error {
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
		return fmt.Errorf("the director is attached to %s already (imbang detach removes it)", now[0].Device)
	}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Errorf("this kernel has no BPF classifiers (CONFIG_NET_CLS_BPF): %w", err)
	}
	if err := d.attachOne("client", client, d.progs.LbClient); err != nil {
		return err
	}
	// One program on a device that is both finds either half by itself.
	if client.Index == server.Index {
		return nil
	}
	if err := d.attachOne("server", server, d.progs.LbServer); err != nil {
		_ = os.Remove(filepath.Join(d.dir, linkPrefix+"client"))
		return err
	}
	return nil
}

// attachOne pins the link: the attachment lives as long as the pin.
func (d *Director) attachOne(role string, dev *net.Interface, prog *ebpf.Program) error {
	l, err := link.AttachTCX(link.TCXOptions{Interface: dev.Index, Program: prog, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("device %s: this kernel has no tcx hook (Linux 6.6 or later is needed)", dev.Name)
	}
	if err != nil {
		return fmt.Errorf("device %s: attach: %w", dev.Name, err)
	}
	defer l.Close()
	path := filepath.Join(d.dir, linkPrefix+role)
	_ = os.Remove(path) // of a device that is gone
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("device %s: pin the attachment: %w", dev.Name, err)
	}
	return nil
}

// CheckDevice refuses a device that the director cannot be attached to.
func CheckDevice(name string) error {
	if err := needRoot(); err != nil {
		return err
	}
	_, err := ethernet(name)
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
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	var all []Attachment
	for _, e := range entries {
		role, ok := strings.CutPrefix(e.Name(), linkPrefix)
		if !ok {
			continue
		}
		l, err := link.LoadPinnedLink(filepath.Join(d.dir, e.Name()), nil)
		if err != nil {
			return nil, fmt.Errorf("pinned attachment %s: %w", e.Name(), err)
		}
		index := attachedTo(l)
		l.Close()
		if index == 0 { // the device is gone, and the attachment with it
			continue
		}
		a := Attachment{Role: role, Index: index, Device: fmt.Sprintf("#%d", index)}
		if dev, err := net.InterfaceByIndex(index); err == nil {
			a.Device = dev.Name
		}
		all = append(all, a)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Role < all[j].Role })
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
	if purge {
		if err := removePins(in.dir()); err != nil {
			return err
		}
		_ = os.Remove(lock.Name())
		in.sweep()
		return nil
	}
	for _, role := range []string{"client", "server"} {
		if err := os.Remove(filepath.Join(in.dir(), linkPrefix+role)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("detach: %w", err)
		}
	}
	return nil
}
