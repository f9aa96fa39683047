// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"fmt"
	"net/netip"
	"time"

	"imbang/internal/daemon/sync/replicate"
)

// DefaultHold is the default of Config.Hold.
const DefaultHold = 5 * time.Second

// Config is what a link is made of.
type Config struct {
	Peer    netip.AddrPort // the other director. Port 0: that of Listen
	Listen  netip.AddrPort // this director's own address. Port 0: Port
	Device  string         // that connections go by; empty: any
	KeyFile string         // as replication's
	Hold    time.Duration  // for which the peer has to see more servers before this director yields
}

// Complete fills in defaults, and refuses what cannot be. Errors begin with the key.
func (c *Config) Complete() error {
	for _, a := range []struct {
		key string
		at  netip.AddrPort
	}{{"listen", c.Listen}, {"peer", c.Peer}} {
		if addr := a.at.Addr(); !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() || addr.Is4In6() {
			return fmt.Errorf("%s: want an address of a director, such as 192.0.2.1 or 192.0.2.1:%d", a.key, Port)
		}
		if a.at.Addr().IsLinkLocalUnicast() && a.at.Addr().Is6() && c.Device == "" {
			return fmt.Errorf("device: missing: the link-local address %s requires one", a.at.Addr())
		}
	}
	if c.Listen.Port() == 0 {
		c.Listen = netip.AddrPortFrom(c.Listen.Addr(), Port)
	}
	if c.Peer.Port() == 0 {
		c.Peer = netip.AddrPortFrom(c.Peer.Addr(), c.Listen.Port())
	}
	switch {
	case c.Listen.Addr().Is4() != c.Peer.Addr().Is4():
		return fmt.Errorf("peer: %s is not of the family of %s (listen)", c.Peer.Addr(), c.Listen.Addr())
	case c.Listen.Addr() == c.Peer.Addr():
		return fmt.Errorf("peer: %s is this director's own address (listen): want that of the other one", c.Peer.Addr())
	case c.KeyFile == "":
		return fmt.Errorf("key_file: missing: want the absolute path of a file with the key that both directors share (openssl rand -hex 32)")
	}
	return nil
}

// SameLink reports whether another configuration is of the same link.
func (c *Config) SameLink(o *Config) bool {
	return c.Peer == o.Peer && c.Listen == o.Listen && c.Device == o.Device && c.KeyFile == o.KeyFile
}

// String says between which addresses the link is.
func (c *Config) String() string { return fmt.Sprintf("%s with %s", c.Listen, c.Peer) }

// key reads the shared key. The rules for the file are replication's.
func (c *Config) key() ([]byte, error) { return replicate.ReadKey(c.KeyFile) }

// KeyDigest identifies the key that the file has now.
func (c *Config) KeyDigest() (replicate.KeyDigest, error) {
	return (&replicate.Config{KeyFile: c.KeyFile}).KeyDigest()
}

// zoned is an address with the device that it is on, where that is needed.
func (c *Config) zoned(a netip.AddrPort) netip.AddrPort {
	if a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() {
		return netip.AddrPortFrom(a.Addr().WithZone(c.Device), a.Port())
	}
	return a
}
