// SPDX-License-Identifier: Apache-2.0

package l7

import (
	"fmt"
	"maps"
	"slices"
)

// Files are the files with certificates that a configuration names, in ascending order; true: with a
// private key.
func (c *Config) Files() (paths []string, key map[string]bool) {
	key = map[string]bool{}
	add := func(path string, has bool) {
		if path != "" {
			key[path] = key[path] || has
		}
	}
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil {
			add(t.ClientCA, false)
			for _, path := range t.Certificates {
				add(path, true)
			}
		}
	}
	for i := range c.Backends {
		if t := c.Backends[i].TLS; t != nil {
			add(t.CA, false)
			add(t.Client, true)
		}
	}
	return slices.Sorted(maps.Keys(key)), key
}

// Pages are the files whose texts are sent to clients.
func (c *Config) Pages() (paths []string) {
	_ = c.ReplacePages(func(_ string, r Reply) *Reply {
		paths = append(paths, r.File)
		return &r
	})
	return paths
}

// ReplacePages is the configuration with other replies in the place of those that have a file; of is
// what has them. Only a backend may get nil.
func (c *Config) ReplacePages(by func(of string, r Reply) *Reply) *Config {
	replace := func(of string, r *Reply) *Reply {
		if r == nil || r.File == "" {
			return r
		}
		return by(of, *r)
	}
	out := *c
	out.Listeners, out.Backends = slices.Clone(c.Listeners), slices.Clone(c.Backends)
	for i := range out.Listeners {
		l := &out.Listeners[i]
		l.Default.Reply = replace("listener "+l.Name, l.Default.Reply)
		l.Routes = slices.Clone(l.Routes)
		for j := range l.Routes {
			t := &l.Routes[j].Target
			t.Reply = replace(fmt.Sprintf("listener %s, route %d", l.Name, j+1), t.Reply)
		}
	}
	for i := range out.Backends {
		b := &out.Backends[i]
		b.Maintenance = replace("backend "+b.Name+": maintenance", b.Maintenance)
	}
	return &out
}
