// SPDX-License-Identifier: Apache-2.0

package config

import "fmt"

// whole checks what concerns more than one place.
func (c *checker) whole() {
	d := c.config.Director
	if d == nil {
		return
	}
	c.movingAddresses(d)
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

// movingAddresses refuses addresses that the daemon would keep and VRRP move.
func (c *checker) movingAddresses(d *Director) {
	if c.config.VRRP == nil {
		return
	}
	for i, a := range d.Addresses {
		for _, g := range c.config.VRRP.Groups {
			for _, moving := range g.AllAddresses() {
				if moving.Prefix.Addr() == a.Prefix.Addr() {
					c.refuse(fmt.Sprintf("director.addresses[%d].address", i), "%s moves with the group %s (vrrp): remove one of the two", a.Prefix.Addr(), g.Name)
				}
			}
		}
	}
}
