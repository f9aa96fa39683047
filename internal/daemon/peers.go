// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/director"
	"imbang/internal/host"
)

// alarmPeers is raised while another director's packets may be balanced again.
const alarmPeers = "peers"

// peers are the other directors that have this one as a server (director.peers), as the data plane is
// told of them. With a section vrrp imbang vrrp does that, also while this process is away.
type peers struct {
	plane   *director.Failover
	macs    map[peerLink]net.HardwareAddr // that were found
	written []director.LinkAddress
	// none was written, too: what an earlier daemon wrote is gone.
	known bool
}

// peerLink is an address on a device.
type peerLink struct {
	index int
	addr  netip.Addr
}

// keepPeers tells the data plane of their hardware addresses. One that does not reply any more keeps
// its own.
func (d *Daemon) keepPeers() {
	c := d.core.Config
	if d.table.none || c.Director == nil || c.VRRP != nil || d.failover.states() != nil {
		d.peers.close()
		d.clear(alarmPeers)
		return
	}
	p := &d.peers
	all, problems := p.resolve(c.Director.Peers)
	if err := p.write(all, control.Socket(d.vrrpDir)); err != nil && !errors.Is(err, director.ErrNotLoaded) {
		problems = append(problems, err.Error())
	}
	d.setAlarm(alarmPeers, strings.Join(problems, "; "))
}

// resolve finds hardware addresses on all links.
func (p *peers) resolve(wanted []netip.Addr) (all []director.LinkAddress, problems []string) {
	if len(wanted) == 0 {
		p.macs = nil
		return nil, nil
	}
	devices, err := host.Devices()
	if err != nil {
		return p.written, []string{err.Error()}
	}
	before := p.macs
	p.macs = map[peerLink]net.HardwareAddr{}
	for _, addr := range wanted {
		on, own := host.Beside(devices, addr)
		if own {
			continue
		}
		if len(on) == 0 {
			problems = append(problems, fmt.Sprintf("director.peers: %s is in no network of this host: what it sends is balanced again", addr))
		}
		for _, dev := range on {
			at := peerLink{dev.Index, addr}
			mac, err := host.NeighbourMAC(dev.Index, addr)
			if err != nil {
				problems = append(problems, err.Error())
			}
			if mac == nil {
				mac = before[at]
			}
			if mac != nil {
				p.macs[at] = mac
				all = append(all, director.LinkAddress{Index: dev.Index, MAC: mac})
			}
		}
	}
	return all, problems
}

// write tells the data plane, if it was not told of these.
func (p *peers) write(all []director.LinkAddress, vrrpSocket string) (err error) {
	if p.plane != nil && p.plane.Stale() {
		p.close()
	}
	same := func(a, b director.LinkAddress) bool { return a.Index == b.Index && bytes.Equal(a.MAC, b.MAC) }
	if p.known && slices.EqualFunc(all, p.written, same) {
		return nil
	}
	if _, err := os.Stat(vrrpSocket); err == nil && len(all) == 0 && !p.known {
		return nil // imbang vrrp may run with a file of its own
	}
	if p.plane == nil {
		if p.plane, err = director.OpenFailover(); err != nil {
			return err
		}
	}
	if err := p.plane.Peers(all...); err != nil {
		return err
	}
	p.written, p.known = all, true
	return nil
}

// close ends the use of the data plane. What was written stays, and the next one is told anew.
func (p *peers) close() {
	if p.plane != nil {
		_ = p.plane.Close()
	}
	p.plane, p.written, p.known = nil, nil, false
}
