// SPDX-License-Identifier: Apache-2.0

package config

// whole checks what concerns more than one place.
func (c *checker) whole() {
	d := c.config.Director
	if d == nil {
		return
	}
	servers := 0
	for _, s := range c.config.Services {
		servers += len(s.Servers)
	}
	if n := len(c.config.Services); d.MaxServices > 0 && n > int(d.MaxServices) {
		c.refuse("director.max_services", "%d is fewer than the %d services below: want more", d.MaxServices, n)
	}
	if d.MaxServers > 0 && servers > int(d.MaxServers) {
		c.refuse("director.max_servers", "%d is fewer than the %d servers below: want more", d.MaxServers, servers)
	}
}
