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
