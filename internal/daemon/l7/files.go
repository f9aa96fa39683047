// SPDX-License-Identifier: Apache-2.0

package l7

import (
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
	_ = c.eachReply(func(r *Reply) *Reply {
		if r.File != "" {
			paths = append(paths, r.File)
		}
		return r
	})
	return paths
}

// ReplacePages is the configuration with other replies in the place of those that have a file.
func (c *Config) ReplacePages(by func(Reply) *Reply) *Config {
	return c.eachReply(func(r *Reply) *Reply {
		if r.File == "" {
			return r
		}
		return by(*r)
	})
}

// eachReply is a copy with other replies; by returns nil for none, which only a backend may have.
func (c *Config) eachReply(by func(*Reply) *Reply) *Config {
	out := *c
	out.Listeners, out.Backends = slices.Clone(c.Listeners), slices.Clone(c.Backends)
	for i := range out.Listeners {
		l := &out.Listeners[i]
		if l.Default.Reply != nil {
			l.Default.Reply = by(l.Default.Reply)
		}
		l.Routes = slices.Clone(l.Routes)
		for j := range l.Routes {
			if t := &l.Routes[j].Target; t.Reply != nil {
				t.Reply = by(t.Reply)
			}
		}
	}
	for i := range out.Backends {
		if b := &out.Backends[i]; b.Maintenance != nil {
			b.Maintenance = by(b.Maintenance)
		}
	}
	return &out
}
