// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"imbang/internal/daemon/sync/own"
)

// Role is what a director does in its group.
type Role string

// Roles.
const (
	Master Role = "master" // sends its connections
	Backup Role = "backup" // copies those of the master
	// RolePair is that of each of two directors to which packets of clients may come: it sends
	// what they do to its connections, and copies those of the other one.
	RolePair Role = "pair"
)

// Roles are all.
func Roles() []Role { return []Role{Master, Backup, RolePair} }

// Known reports whether it is one of Roles.
func (r Role) Known() bool { return slices.Contains(Roles(), r) }

func (r Role) sends() bool { return r != Backup }

// from is what a role that receives calls the other director.
func (r Role) from() string {
	if r == RolePair {
		return "the other director"
	}
	return "the master"
}

// Config is what a role is made of.
type Config struct {
	Role Role
	// Listen is the director's own address. Port 0: own.Port.
	Listen netip.AddrPort
	// To are the other directors, or a multicast group. Port 0: that of Listen.
	To []netip.AddrPort
	// Interface is required with a multicast group, and with link-local addresses.
	Interface string
	Group     uint16
	// KeyFile has the key that all directors of the group share: at least 32 hexadecimal
	// digits.
	KeyFile string
}

// Complete fills in defaults, and refuses what cannot be.
func (c *Config) Complete() error {
	if !c.Role.Known() {
		return fmt.Errorf("replication: role %q: want %s, %s or %s", c.Role, Master, Backup, RolePair)
	}
	if a := c.Listen.Addr(); !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("replication: listen: want an address of this director, such as 192.0.2.1 or 192.0.2.1:%d", own.Port)
	}
	if c.Listen.Port() == 0 {
		c.Listen = netip.AddrPortFrom(c.Listen.Addr(), own.Port)
	}
	if len(c.To) == 0 {
		return fmt.Errorf("replication: to: missing: want the address of each other director, or a multicast group")
	}
	if c.Role == RolePair && (len(c.To) > 1 || c.To[0].Addr().IsMulticast()) {
		return fmt.Errorf("replication: to: want one address with role %s, that of the other director, and no multicast group", RolePair)
	}
	to := make([]netip.AddrPort, len(c.To)) // the caller's stays as it is
	for i, a := range c.To {
		switch {
		case !a.Addr().IsValid() || a.Addr().IsUnspecified():
			return fmt.Errorf("replication: to: %s is not an address of another director", a)
		case a.Addr().Is4() != c.Listen.Addr().Is4():
			return fmt.Errorf("replication: to: %s is not of the family of %s", a.Addr(), c.Listen.Addr())
		case a.Addr().IsMulticast() && c.Interface == "":
			return fmt.Errorf("replication: interface: missing: the group %s requires one", a.Addr())
		case a.Addr().IsMulticast() && len(c.To) > 1:
			return fmt.Errorf("replication: to: want one multicast group, or addresses of directors, not both")
		case a.Addr().IsLinkLocalUnicast() && a.Addr().Is6() && c.Interface == "":
			return fmt.Errorf("replication: interface: missing: the link-local address %s requires one", a.Addr())
		}
		if a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), c.Listen.Port())
		}
		switch {
		case a == c.Listen:
			return fmt.Errorf("replication: to: %s is this director's own address: want those of the others", a)
		case slices.Contains(to[:i], a):
			return fmt.Errorf("replication: to: %s is given twice: remove one", a)
		}
		to[i] = a
	}
	c.To = to
	return nil
}

// ParseAddress reads ADDRESS or ADDRESS:PORT, of IPv6 [ADDRESS]:PORT. Without a port that is
// 0, which Complete replaces.
func ParseAddress(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err == nil && at.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("%q: want a port from 1 to 65535, or none for the default", text)
	}
	if err != nil {
		var a netip.Addr
		a, err = netip.ParseAddr(text)
		at = netip.AddrPortFrom(a, 0)
	}
	if err != nil || at.Addr().Zone() != "" || at.Addr().Is4In6() {
		return netip.AddrPort{}, fmt.Errorf("%q: want an address with or without port, such as 192.0.2.1, 192.0.2.1:%d or [fd00::1]:%d", text, own.Port, own.Port)
	}
	return at, nil
}

// Equal reports whether two configurations are the same.
func (c *Config) Equal(o *Config) bool {
	return slices.Equal(c.To, o.To) && c.Role == o.Role && c.Listen == o.Listen && c.Interface == o.Interface && c.Group == o.Group && c.KeyFile == o.KeyFile
}

// String says where datagrams go, such as 192.0.2.1:8790 to 192.0.2.2:8790, group 0.
func (c *Config) String() string {
	var to []string
	for _, a := range c.To {
		to = append(to, a.String())
	}
	return fmt.Sprintf("%s to %s, group %d", c.Listen, strings.Join(to, ", "), c.Group)
}
