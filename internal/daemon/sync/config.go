// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"fmt"
	"net/netip"
)

// Role is what a director does in synchronization.
type Role string

// Roles, under ipvsadm's names.
const (
	RoleMaster Role = "master"
	RoleBackup Role = "backup"
)

// Defaults and bounds of start_sync_thread and ipvsadm(8).
const (
	DefaultPort = 8848
	DefaultTTL  = 1

	defaultMTU       = 1500  // of a master's messages, whatever the interface's is
	mostMTU          = 65535 // of a backup's buffer
	minBackupLength  = 1024
	headers4         = 20 + 8 // IPv4 and UDP
	headers6         = 40 + 8 // IPv6 and UDP
	interfaceNameMax = 15     // IFNAMSIZ, less the final zero
)

// DefaultGroup is the multicast group (IP_VS_SYNC_GROUP).
func DefaultGroup() netip.Addr { return netip.AddrFrom4([4]byte{224, 0, 0, 81}) }

// Config is what ipvsadm --start-daemon gets (struct ipvs_sync_daemon_cfg). Zero values of
// MaxLen, Group, Port and TTL are for Linux's defaults.
type Config struct {
	Role Role
	// SyncID is in each message of a master. A backup uses messages with its own one only;
	// with 0, which is ipvsadm's default, all of them.
	SyncID    uint8
	Interface string
	// MaxLen is the greatest length of a message [bytes of UDP's payload]. A backup drops
	// longer ones. Default: for a master 1500, for a backup the interface's MTU but at least
	// 1500, less the headers of IP and UDP.
	MaxLen int
	Group  netip.Addr // multicast, IPv4 or IPv6; default 224.0.0.81
	Port   uint16     // of the first thread; default 8848
	TTL    uint8      // default 1
}

// Complete enters Linux's defaults and bounds, as start_sync_thread and
// ip_vs_genl_new_daemon have them. mtu tells the MTU of an interface [bytes].
func (c *Config) Complete(mtu func(name string) (int, error)) error {
	if c.Role != RoleMaster && c.Role != RoleBackup {
		return fmt.Errorf("role %q: want master or backup", c.Role)
	}
	if c.Interface == "" || len(c.Interface) > interfaceNameMax {
		return fmt.Errorf("synchronization's interface %q: want a name of 1 to %d bytes (--mcast-interface)", c.Interface, interfaceNameMax)
	}
	if c.MaxLen < 0 {
		return fmt.Errorf("a greatest length of messages of %d: want 1 or more bytes, or 0 for the default (--sync-maxlen)", c.MaxLen)
	}
	if !c.Group.IsValid() {
		c.Group = DefaultGroup()
	}
	if !c.Group.IsMulticast() || c.Group.Is4In6() || c.Group.Zone() != "" {
		return fmt.Errorf("group %s: want a multicast address of IPv4 or IPv6 without a zone, such as 224.0.0.81 or ff02::81 (--mcast-group)", c.Group)
	}
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	linkMTU, err := mtu(c.Interface)
	if err != nil {
		return err
	}
	headers := headers4
	if c.Group.Is6() {
		headers = headers6
	}
	least, link := 1, defaultMTU
	if c.Role == RoleBackup {
		least, link = minBackupLength, min(max(linkMTU, defaultMTU), mostMTU)
	}
	if c.MaxLen == 0 {
		c.MaxLen = link - headers
	}
	c.MaxLen = min(max(c.MaxLen, least), mostMTU-headers)
	return nil
}
