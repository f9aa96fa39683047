// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// End is one end of a veth pair.
type End struct {
	NS   *Namespace
	Name string
	MAC  string // such as 02:00:00:00:00:01; empty lets the kernel choose
}

// LinkOptions hold for both ends of a pair; zero values are the kernel's
// defaults (MTU 1500, one queue each way).
type LinkOptions struct {
	MTU    int
	Queues int
}

// Connect makes a veth pair between two namespaces and brings both ends up.
func Connect(a, b End, o LinkOptions) error {
	fail := func(err error) error {
		return fmt.Errorf("link %s/%s to %s/%s: %w", a.NS.name, a.Name, b.NS.name, b.Name, needRoot(err))
	}
	macA, err := parseMAC(a.MAC)
	if err != nil {
		return fail(err)
	}
	macB, err := parseMAC(b.MAC)
	if err != nil {
		return fail(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = a.Name, macA, o.MTU
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerHardwareAddr, pair.PeerMTU = b.Name, macB, uint32(o.MTU)
	pair.PeerNamespace = netlink.NsFd(b.NS.file.Fd())
	if o.Queues > 0 {
		pair.NumTxQueues, pair.NumRxQueues = o.Queues, o.Queues
		pair.PeerNumTxQueues, pair.PeerNumRxQueues = uint32(o.Queues), uint32(o.Queues)
	}
	if err := a.NS.handle.LinkAdd(pair); err != nil {
		return fail(err)
	}
	if err := a.NS.Up(a.Name); err != nil {
		return err
	}
	return b.NS.Up(b.Name)
}

// parseMAC accepts an empty string as "none given".
func parseMAC(s string) (net.HardwareAddr, error) {
	if s == "" {
		return nil, nil
	}
	return net.ParseMAC(s)
}

// Share makes a macvlan on a device of this namespace and moves it to another
// namespace, up: several namespaces then have one network through one device.
// Frames between them and the device's other end are switched by hardware
// address without a second queue, which makes it about half the cost of a
// bridge with a veth pair for each.
func (n *Namespace) Share(dev string, end End) error {
	parent, err := n.link(dev)
	if err != nil {
		return err
	}
	mac, err := parseMAC(end.MAC)
	if err != nil {
		return n.wrap(end.Name, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.ParentIndex = end.Name, mac, parent.Attrs().Index
	attrs.Namespace = netlink.NsFd(end.NS.file.Fd())
	if err := n.handle.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
		return n.wrap(dev, fmt.Errorf("macvlan %s for network namespace %s: %w", end.Name, end.NS.name, needRoot(err)))
	}
	return end.NS.Up(end.Name)
}

// Up brings a device up.
func (n *Namespace) Up(dev string) error {
	link, err := n.link(dev)
	if err != nil {
		return err
	}
	if err := n.handle.LinkSetUp(link); err != nil {
		return n.wrap(dev, needRoot(err))
	}
	return nil
}

// Down takes a device down.
func (n *Namespace) Down(dev string) error {
	link, err := n.link(dev)
	if err != nil {
		return err
	}
	if err := n.handle.LinkSetDown(link); err != nil {
		return n.wrap(dev, needRoot(err))
	}
	return nil
}

// DeleteLink removes a device; for a veth its peer goes too.
func (n *Namespace) DeleteLink(dev string) error {
	link, err := n.link(dev)
	if err != nil {
		return err
	}
	if err := n.handle.LinkDel(link); err != nil {
		return n.wrap(dev, needRoot(err))
	}
	return nil
}

// LinkIndex is the interface index of a device in the namespace.
func (n *Namespace) LinkIndex(dev string) (int, error) {
	link, err := n.link(dev)
	if err != nil {
		return 0, err
	}
	return link.Attrs().Index, nil
}

// LinkMAC is the hardware address of a device.
func (n *Namespace) LinkMAC(dev string) (net.HardwareAddr, error) {
	link, err := n.link(dev)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, nil
}

func (n *Namespace) link(dev string) (netlink.Link, error) {
	link, err := n.handle.LinkByName(dev)
	if err != nil {
		return nil, n.wrap(dev, err)
	}
	return link, nil
}

// wrap names the object of an error.
func (n *Namespace) wrap(dev string, err error) error {
	return fmt.Errorf("device %s in network namespace %s: %w", dev, n.name, err)
}
