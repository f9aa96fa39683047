// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"imbang/internal/director"
)

// top checks what only the first file has.
func (c *checker) top(d *document) {
	c.director(d.Director)
	for _, name := range slices.Sorted(maps.Keys(d.Settings)) {
		parsed, err := director.ParseSettings(name + "=" + d.Settings[name])
		if err != nil {
			c.refuse("settings."+name, "%s", strings.TrimPrefix(err.Error(), "setting "+name+": "))
			continue
		}
		for _, s := range parsed {
			c.config.Settings = append(c.config.Settings, Setting{s.Name, s.Value})
		}
	}
	t := &c.config.Timeouts
	t.TCP = c.duration("timeouts.tcp", d.Timeouts.TCP, time.Second, 0)
	t.TCPFin = c.duration("timeouts.tcp_fin", d.Timeouts.TCPFin, time.Second, 0)
	t.UDP = c.duration("timeouts.udp", d.Timeouts.UDP, time.Second, 0)
	c.daemon(&d.Daemon)
	c.synchronization(&d.Sync)
	c.pair(d.Pair)
	c.vrrp(d.VRRP)
}

func (c *checker) director(d *directorDoc) {
	if d == nil {
		return
	}
	if d.ClientDevice == "" {
		c.refuse("director.client_device", "missing: want the device that clients' packets come in by, such as eth0")
	}
	out := &Director{ClientDevice: d.ClientDevice, ServerDevice: d.ServerDevice, Forwarding: d.Forwarding == nil || *d.Forwarding}
	if out.ServerDevice == "" {
		out.ServerDevice = d.ClientDevice
	}
	out.Mode = c.oneOf("director.mode", d.Mode, "auto", "tc", "xdp", "xdp-generic")
	out.Hook = c.oneOf("director.hook", d.Hook, "auto", "tcx", "clsact")
	for _, size := range []struct {
		key   string
		n     int
		into  *uint32
		limit int
	}{
		{"max_services", d.MaxServices, &out.MaxServices, director.MaxServices},
		{"max_servers", d.MaxServers, &out.MaxServers, director.MaxServers},
		{"max_connections", d.MaxConnections, &out.MaxConnections, director.MaxConnections},
	} {
		if at := "director." + size.key; c.tree.Has(at) {
			*size.into = uint32(c.between(at, size.n, 1, size.limit))
		}
	}
	known := map[netip.Addr]bool{}
	for i, a := range d.Addresses {
		at := fmt.Sprintf("director.addresses[%d]", i)
		one := c.address(at, a, d.ClientDevice)
		if known[one.Prefix.Addr()] && one.Prefix.IsValid() {
			c.refuse(at+".address", "%s is given twice: remove one", one.Prefix.Addr())
		}
		known[one.Prefix.Addr()] = true
		out.Addresses = append(out.Addresses, one)
	}
	for i, text := range d.Peers {
		at := fmt.Sprintf("director.peers[%d]", i)
		a, err := netip.ParseAddr(text)
		switch {
		case err != nil || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
			c.refuse(at, "%q: want the address of a director on a link of this one, without port, such as 172.16.0.3", text)
		case slices.Contains(out.Peers, a):
			c.refuse(at, "%s is given twice: remove one", a)
		default:
			out.Peers = append(out.Peers, a)
		}
	}
	if len(out.Peers) > maxPeers {
		c.refuse("director.peers", "%d addresses: want at most %d", len(out.Peers), maxPeers)
	}
	c.config.Director = out
}

// maxPeers is half of what the table of hardware addresses has room for: each may be on two devices.
const maxPeers = 32

// peers are the other directors where director.peers does not say: those that the link of the pair
// and replication name, if they are real servers. Services are known then.
func (c *checker) peers() {
	d := c.config.Director
	if d == nil {
		return
	}
	if !c.tree.Has("director.peers") {
		servers := c.serverAddresses()
		for _, a := range c.linked() {
			if _, is := slices.BinarySearchFunc(servers, a, netip.Addr.Compare); is && !slices.Contains(d.Peers, a) {
				d.Peers = append(d.Peers, a)
			}
		}
	}
	if c.config.VRRP != nil {
		c.config.VRRP.Peers = d.Peers
	}
}

// linked are the addresses of directors that this one talks to.
func (c *checker) linked() (all []netip.Addr) {
	if c.config.Pair != nil {
		all = append(all, c.config.Pair.Peer.Addr())
	}
	if c.config.Replication != nil {
		for _, to := range c.config.Replication.To {
			all = append(all, to.Addr())
		}
	}
	return all
}

func (c *checker) address(path string, a addressDoc, device string) Address {
	if a.Device != "" {
		device = a.Device
	}
	p, problem := parseAddress(a.Address)
	if problem != "" {
		c.refuse(path+".address", "%s", problem)
	}
	return Address{p, device}
}

// parseAddress reads an address with or without prefix length, and says what is wrong.
func parseAddress(text string) (p netip.Prefix, problem string) {
	p, err := netip.ParsePrefix(text)
	if addr, alone := netip.ParseAddr(text); alone == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		problem = fmt.Sprintf("%q: want an address with or without prefix length, such as 10.20.0.1/32", text)
	case p.Addr().IsUnspecified() || p.Addr().IsMulticast() || p.Addr().IsLoopback():
		problem = fmt.Sprintf("%s is not an address that clients can reach", text)
	}
	return p, problem
}

func (c *checker) daemon(d *daemonDoc) {
	out := &c.config.Daemon
	out.Watch = d.Watch
	out.MaxRemoved = c.share("daemon.max_removed", d.MaxRemoved, 0.5)
	out.AuditInterval = c.duration("daemon.audit_interval", d.AuditInterval, 0, 5*time.Minute)
	out.ScriptUser = d.ScriptUser
	if out.ScriptUser == "" {
		out.ScriptUser = "nobody"
	}
	out.Mail, out.MailTo = c.command("daemon.mail", d.Mail), d.MailTo
	for i, to := range d.MailTo {
		if !strings.Contains(to, "@") && !strings.HasPrefix(to, "root") || strings.ContainsAny(to, "\r\n ") {
			c.refuse(fmt.Sprintf("daemon.mail_to[%d]", i), "%q: want a mail address", to)
		}
	}
	if len(d.MailTo) > 0 && len(d.Mail) == 0 {
		c.refuse("daemon.mail_to", "nothing sends mail: write mail: [/usr/sbin/sendmail, -t], or remove it")
	}
	out.Metrics.NodeExporter = d.Metrics.NodeExporter
	if d.Metrics.Listen != "" {
		at, err := netip.ParseAddrPort(d.Metrics.Listen)
		if err != nil || !at.Addr().IsLoopback() {
			c.refuse("daemon.metrics.listen", "%q: want a loopback address and port, such as 127.0.0.1:9106 (a proxy can publish it)", d.Metrics.Listen)
		}
		out.Metrics.Listen = at
	} else if d.Metrics.NodeExporter {
		c.refuse("daemon.metrics.node_exporter", "requires listen, such as listen: 127.0.0.1:9106")
	}
}
