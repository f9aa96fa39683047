// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/replicate"
)

// synchronization enters the roles of connection synchronization. Whether their devices
// are there is not looked at: a role waits for its own.
func (c *checker) synchronization(d *syncDoc) {
	for _, r := range []struct {
		role synchronize.Role
		doc  *syncRoleDoc
	}{{synchronize.RoleMaster, d.Master}, {synchronize.RoleBackup, d.Backup}} {
		if r.doc != nil {
			c.config.Roles = append(c.config.Roles, c.syncRole("synchronization."+string(r.role), r.role, r.doc))
		}
	}
	if d.Replication != nil {
		c.config.Replication = c.replication("synchronization.replication", d.Replication)
	}
}

// maxDeviceName is the length of a device's name (IFNAMSIZ, less the final zero).
const maxDeviceName = 15

func (c *checker) syncRole(at string, role synchronize.Role, d *syncRoleDoc) synchronize.Config {
	out := synchronize.Config{Role: role, Interface: d.Interface}
	if d.Interface == "" || len(d.Interface) > maxDeviceName {
		c.refuse(at+".interface", "%q: want the device by which messages are sent or received, such as eth1", d.Interface)
	}
	if d.Group != "" || c.tree.Has(at+".group") {
		group, err := netip.ParseAddr(d.Group)
		if err != nil || !group.IsMulticast() || group.Is4In6() || group.Zone() != "" {
			c.refuse(at+".group", "%q: want a multicast address, such as 224.0.0.81 or ff02::81", d.Group)
		}
		out.Group = group
	}
	number := func(key string, n, low, high int) int {
		if !c.tree.Has(at + "." + key) {
			return 0
		}
		return c.between(at+"."+key, n, low, high)
	}
	out.SyncID = uint8(number("sync_id", d.SyncID, 0, 255))
	out.Port = uint16(number("port", d.Port, 1, 65535))
	out.TTL = uint8(number("ttl", d.TTL, 1, 255))
	out.MaxLen = number("max_length", d.MaxLength, 1, 65507)
	return out
}

// replication enters the role of imbang's own protocol. The key's file is not read: the
// configuration may be checked on another machine.
func (c *checker) replication(at string, d *replicationDoc) *replicate.Config {
	before := len(c.mistakes)
	out := &replicate.Config{
		Role: replicate.Role(d.Role), Interface: d.Interface, KeyFile: d.KeyFile,
		Group: uint16(c.between(at+".group", d.Group, 0, 65535)),
	}
	if !out.Role.Known() {
		c.refuse(at+".role", "%q: want %s, %s or %s", d.Role, replicate.Master, replicate.Backup, replicate.RolePair)
	}
	out.Listen = c.replicationAddress(at+".listen", d.Listen)
	for i, text := range d.To {
		out.To = append(out.To, c.replicationAddress(fmt.Sprintf("%s.to[%d]", at, i), text))
	}
	if len(d.Interface) > maxDeviceName || c.tree.Has(at+".interface") && d.Interface == "" {
		c.refuse(at+".interface", "%q: want the device that leads to the other directors, such as eth1", d.Interface)
	}
	if !filepath.IsAbs(d.KeyFile) {
		c.refuse(at+".key_file", "%q: want the absolute path of a file with the group's key (openssl rand -hex 32)", d.KeyFile)
	}
	if len(c.mistakes) > before {
		return out
	}
	if err := out.Complete(); err != nil {
		// Its text begins with the key that it is about.
		text := strings.TrimPrefix(err.Error(), "replication: ")
		key, rest, _ := strings.Cut(text, ": ")
		c.refuse(at+"."+key, "%s", rest)
	}
	return out
}

func (c *checker) replicationAddress(at, text string) netip.AddrPort {
	a, err := replicate.ParseAddress(text)
	if err != nil {
		c.refuse(at, "%v", err)
	}
	return a
}
