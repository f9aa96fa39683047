// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"net/netip"
	"reflect"
	"testing"
)

func backendOf(name string, servers ...Server) *Config {
	return &Config{Backends: []Backend{{Name: name, Servers: servers}}}
}

func serverAt(name, at string, weight int) Server {
	return Server{Name: name, Address: netip.MustParseAddrPort(at), Weight: weight}
}

func TestServersThatChange(t *testing.T) {
	one, two := serverAt("web1", "172.16.0.2:80", 1), serverAt("web2", "172.16.0.3:80", 1)
	heavy, renamed, backup := one, one, one
	heavy.Weight, renamed.Name, backup.Backup, backup.MaxConnections = 3, "first", true, 7
	for _, c := range []struct {
		what           string
		was, next      *Config
		named, removed int
		lines          []string
	}{
		{"nothing", nil, nil, 0, 0, nil},
		{"the same", backendOf("web", one, two), backendOf("web", one, two), 2, 0, nil},
		{"the first configuration", nil, backendOf("web", one), 0, 0, []string{"add backend web: server web1, 172.16.0.2:80, weight 1, no limit of connections, no backup"}},
		{"one of two goes", backendOf("web", one, two), backendOf("web", one), 2, 1, []string{"delete backend web: server web2, 172.16.0.3:80"}},
		{"all go", backendOf("web", one, two), nil, 2, 2, []string{"delete backend web: server web1, 172.16.0.2:80", "delete backend web: server web2, 172.16.0.3:80"}},
		{"another backend", backendOf("web", one), backendOf("api", one), 1, 1, []string{"add backend api: server web1, 172.16.0.2:80, weight 1, no limit of connections, no backup", "delete backend web: server web1, 172.16.0.2:80"}},
		{"a weight", backendOf("web", one), backendOf("web", heavy), 1, 0, []string{"change backend web: server web1, 172.16.0.2:80 from weight 1 to weight 3"}},
		{"a name", backendOf("web", one), backendOf("web", renamed), 1, 0, []string{"change backend web: server first, 172.16.0.2:80 from name web1 to name first"}},
		{"more", backendOf("web", one), backendOf("web", backup), 1, 0, []string{"change backend web: server web1, 172.16.0.2:80 from no limit of connections, no backup to 7 connections at most, backup"}},
	} {
		named, removed := Removed(c.was, c.next)
		if lines := Differences(c.was, c.next); named != c.named || removed != c.removed || !reflect.DeepEqual(lines, c.lines) {
			t.Errorf("%s: %d of %d removed, %q; want %d of %d, %q", c.what, removed, named, lines, c.removed, c.named, c.lines)
		}
	}
}
