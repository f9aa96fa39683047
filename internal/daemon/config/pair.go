// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"imbang/internal/daemon/pair"
)

// pair enters the link to the other director. Addresses and key are replication's where it has
// them.
func (c *checker) pair(d *pairDoc) {
	if d == nil {
		return
	}
	const at = "pair"
	before := len(c.mistakes)
	out := &pair.Config{Device: d.Device, KeyFile: d.KeyFile, Hold: c.duration(at+".hold", d.Hold, time.Second, pair.DefaultHold)}
	r := c.config.Replication
	if d.Listen == "" && r != nil {
		out.Listen = netip.AddrPortFrom(r.Listen.Addr(), 0)
	} else {
		out.Listen = c.endpointOf(at+".listen", d.Listen, "of this director")
	}
	if d.Peer == "" && r != nil && len(r.To) == 1 && !r.To[0].Addr().IsMulticast() {
		out.Peer = netip.AddrPortFrom(r.To[0].Addr(), 0)
	} else {
		out.Peer = c.endpointOf(at+".peer", d.Peer, "of the other director")
	}
	if out.KeyFile == "" && r != nil {
		out.KeyFile = r.KeyFile
	}
	if !filepath.IsAbs(out.KeyFile) {
		c.refuse(at+".key_file", "%q: want the absolute path of a file with the key that both directors share (openssl rand -hex 32)", d.KeyFile)
	}
	if len(d.Device) > maxDeviceName || c.tree.Has(at+".device") && d.Device == "" {
		c.refuse(at+".device", "%q: want the device that leads to the other director, such as eth1", d.Device)
	}
	if len(c.mistakes) == before {
		if err := out.Complete(); err != nil {
			key, rest, _ := strings.Cut(err.Error(), ": ")
			c.refuse(at+"."+key, "%s", rest)
		}
	}
	c.config.Pair = out
}

// endpointOf is an address of one director, with or without port.
func (c *checker) endpointOf(at, text, whose string) netip.AddrPort {
	a, err := netip.ParseAddrPort(text)
	none := err == nil && a.Port() == 0
	if alone, failed := netip.ParseAddr(text); failed == nil {
		a, err = netip.AddrPortFrom(alone, 0), nil
	}
	if err != nil || none || a.Addr().Zone() != "" || a.Addr().Is4In6() {
		c.refuse(at, "%q: want an address %s with or without TCP port, such as 192.0.2.1, 192.0.2.1:%d or [fd00::1]:%d", text, whose, pair.Port, pair.Port)
	}
	return a
}
