// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"

	synchronize "imbang/internal/daemon/sync"
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
