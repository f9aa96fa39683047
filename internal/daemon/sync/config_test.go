// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	six := netip.MustParseAddr("ff02::81")
	four := DefaultGroup()
	for _, c := range []struct {
		name     string
		mtu      int
		in, want Config
	}{
		{"a master's defaults", 9000, Config{Role: RoleMaster, Interface: "eth0"},
			Config{Role: RoleMaster, Interface: "eth0", MaxLen: 1472, Group: four, Port: 8848, TTL: 1}},
		{"a master's with IPv6", 9000, Config{Role: RoleMaster, Interface: "eth0", Group: six},
			Config{Role: RoleMaster, Interface: "eth0", MaxLen: 1452, Group: six, Port: 8848, TTL: 1}},
		{"a backup's defaults", 9000, Config{Role: RoleBackup, Interface: "eth0"},
			Config{Role: RoleBackup, Interface: "eth0", MaxLen: 8972, Group: four, Port: 8848, TTL: 1}},
		{"a backup's on a small MTU", 1280, Config{Role: RoleBackup, Interface: "eth0"},
			Config{Role: RoleBackup, Interface: "eth0", MaxLen: 1472, Group: four, Port: 8848, TTL: 1}},
		{"a backup's on lo, with IPv6", 65536, Config{Role: RoleBackup, Interface: "lo", Group: six},
			Config{Role: RoleBackup, Interface: "lo", MaxLen: 65487, Group: six, Port: 8848, TTL: 1}},
		{"a backup's least length", 1500, Config{Role: RoleBackup, Interface: "eth0", MaxLen: 1},
			Config{Role: RoleBackup, Interface: "eth0", MaxLen: 1024, Group: four, Port: 8848, TTL: 1}},
		{"a master's least length", 1500, Config{Role: RoleMaster, Interface: "eth0", MaxLen: 1},
			Config{Role: RoleMaster, Interface: "eth0", MaxLen: 1, Group: four, Port: 8848, TTL: 1}},
		{"the greatest length", 1500, Config{Role: RoleMaster, Interface: "eth0", MaxLen: 70000},
			Config{Role: RoleMaster, Interface: "eth0", MaxLen: 65507, Group: four, Port: 8848, TTL: 1}},
		{"what is set remains", 1500, Config{Role: RoleMaster, SyncID: 255, Interface: "eth0", MaxLen: 500, Group: netip.MustParseAddr("239.1.2.3"), Port: 1, TTL: 255},
			Config{Role: RoleMaster, SyncID: 255, Interface: "eth0", MaxLen: 500, Group: netip.MustParseAddr("239.1.2.3"), Port: 1, TTL: 255}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.in
			mtu := func(name string) (int, error) {
				if name != c.in.Interface {
					t.Errorf("asked for %s", name)
				}
				return c.mtu, nil
			}
			for range 2 { // and again: nothing changes
				if err := got.Complete(mtu); err != nil || got != c.want {
					t.Errorf("%+v, %v; want %+v", got, err, c.want)
				}
			}
		})
	}
}

func TestCompleteRefuses(t *testing.T) {
	gone := errors.New("no such interface")
	for _, c := range []struct {
		in   Config
		want string
	}{
		{Config{Role: "observer", Interface: "eth0"}, `role "observer": want master or backup`},
		{Config{Role: RoleMaster}, "--mcast-interface"},
		{Config{Role: RoleMaster, Interface: "abcdefghijklmnop"}, "--mcast-interface"},
		{Config{Role: RoleMaster, Interface: "eth0", MaxLen: -1}, "--sync-maxlen"},
		{Config{Role: RoleMaster, Interface: "eth0", Group: netip.MustParseAddr("10.0.0.1")}, "group 10.0.0.1: want a multicast address"},
		{Config{Role: RoleMaster, Interface: "eth0", Group: netip.MustParseAddr("::ffff:224.0.0.81")}, "want a multicast address"},
		{Config{Role: RoleMaster, Interface: "eth0", Group: netip.MustParseAddr("ff02::81%eth0")}, "without a zone"},
		{Config{Role: RoleMaster, Interface: "eth9"}, "no such interface"},
	} {
		err := c.in.Complete(func(name string) (int, error) {
			if name == "eth9" {
				return 0, gone
			}
			return 1500, nil
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.in, err, c.want)
		}
	}
}
