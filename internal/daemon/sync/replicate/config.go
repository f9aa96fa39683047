// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"

	"imbang/internal/daemon/sync/own"
)

// Role is what a director does in its group.
type Role string

// Roles.
const (
	Master Role = "master" // sends its connections
	Backup Role = "backup" // copies those of the master
)

// leastKey is the shortest key [bytes].
const leastKey = 16

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
	if c.Role != Master && c.Role != Backup {
		return fmt.Errorf("replication: role %q: want %s or %s", c.Role, Master, Backup)
	}
	if !c.Listen.Addr().IsValid() {
		return fmt.Errorf("replication: listen: missing: want an own address, as 192.0.2.1 or 192.0.2.1:%d", own.Port)
	}
	if c.Listen.Port() == 0 {
		c.Listen = netip.AddrPortFrom(c.Listen.Addr(), own.Port)
	}
	if len(c.To) == 0 {
		return fmt.Errorf("replication: to: missing: want the address of each other director, or a multicast group")
	}
	to := make([]netip.AddrPort, len(c.To)) // the caller's stays as it is
	for i, a := range c.To {
		switch {
		case !a.Addr().IsValid() || a.Addr().IsUnspecified():
			return fmt.Errorf("replication: to: %s is not an address of another director", a)
		case a.Addr().Is4() != c.Listen.Addr().Is4():
			return fmt.Errorf("replication: to: %s is not of the family of %s", a, c.Listen)
		case a.Addr().IsMulticast() && c.Interface == "":
			return fmt.Errorf("replication: interface: missing: the group %s requires one", a)
		case a.Addr().IsMulticast() && len(c.To) > 1:
			return fmt.Errorf("replication: to: a multicast group, or the addresses of directors, not both")
		}
		if a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), c.Listen.Port())
		}
		to[i] = a
	}
	c.To = to
	return nil
}

// key reads the group's key.
func (c *Config) key() ([]byte, error) {
	if c.KeyFile == "" {
		return nil, fmt.Errorf("replication: key file: missing: make one with: openssl rand -hex 32 >FILE; chmod 600 FILE")
	}
	info, err := os.Stat(c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("replication: key file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("replication: key file %s can be read by others: chmod 600 %s", c.KeyFile, c.KeyFile)
	}
	text, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("replication: key file: %w", err)
	}
	key, err := hex.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) < leastKey {
		return nil, fmt.Errorf("replication: key file %s: want at least %d hexadecimal digits in one line", c.KeyFile, 2*leastKey)
	}
	return key, nil
}
