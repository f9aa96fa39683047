// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"imbang/internal/host"
)

// Machine is what a director that is a machine of its own, not a namespace, has to be given
// to be on the networks.
type Machine struct {
	Devices  []MachineDevice
	Settings []Setting
	Routes   []host.Route
}

// MachineDevice is a network device of a machine.
type MachineDevice struct {
	Name      string // in the machine
	Tap       string // the other end: a port of a bridge
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
}

// Setting is a sysctl.
type Setting struct{ Key, Value string }

// Machine is a director of a pair of machines.
func (p *Pair) Machine(director int) Machine {
	m := Machine{Routes: p.clientRoutes()}
	for i, n := range pairNetworks {
		m.Devices = append(m.Devices, MachineDevice{
			Name: n.device, Tap: port(director, n.bridge),
			// It stays when the machine is replaced by another one, as a server's does.
			MAC:       net.HardwareAddr{0x02, 0, 0, 0x0d, byte(director + 1), byte(i + 1)},
			Addresses: p.own(director, n.bridge),
		})
	}
	for _, s := range slices.Concat(silence(p.families), pairDirectorSettings) {
		m.Settings = append(m.Settings, Setting{s.key, s.value})
	}
	return m
}

// DirectorMAC is the hardware address of a director's device.
func (p *Pair) DirectorMAC(director int, device string) (net.HardwareAddr, error) {
	if ns := p.Directors[director]; ns != nil {
		return ns.LinkMAC(device)
	}
	for _, d := range p.Machine(director).Devices {
		if d.Name == device {
			return d.MAC, nil
		}
	}
	return nil, fmt.Errorf("director %d has no device %s", director+1, device)
}

// addTaps makes the ports of a director that is a machine.
func (p *Pair) addTaps(director int) error {
	for _, n := range pairNetworks {
		at := pairPlug{port(director, n.bridge), n.bridge, director}
		err := p.fabric.Do(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = at.port
			// One queue: User Mode Linux opens no others.
			if err := netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP}); err != nil {
				return fmt.Errorf("tap device %s: %w", at.port, err)
			}
			return join(at.port, at.bridge)
		})
		if err != nil {
			return err
		}
		p.plugs = append(p.plugs, at)
		if err := p.fabric.Up(at.port); err != nil {
			return err
		}
	}
	return nil
}
