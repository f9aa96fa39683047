// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// Directors that are servers of each other are those that are named, or else the real servers among
// the addresses that this director is linked to.
func TestPeers(t *testing.T) {
	const (
		linked   = "pair: {listen: 172.16.0.2, peer: 172.16.0.3, key_file: /k}\n"
		replicas = "synchronization: {replication: {role: master, listen: 172.16.0.2, to: [172.16.0.3, 172.16.0.4], key_file: /k}}\n"
		services = "services:\n  - {name: web, virtual: \"10.20.0.1:80\", forward: direct-routing, servers: [{address: 172.16.0.2}, {address: 172.16.0.3}]}\n"
		group    = "vrrp: {groups: [{name: web, routers: [{device: eth0, id: 1, addresses: [10.20.0.1]}]}]}\n"
	)
	for _, c := range []struct{ director, rest, want string }{
		{"", services, "[]"},
		{"", linked, "[]"},
		{"", linked + services, "[172.16.0.3]"},
		{"", replicas + services, "[172.16.0.3]"},
		{", peers: []", linked + services, "[]"},
		{", peers: [172.16.0.2, 172.16.0.9, \"fd00::3\"]", linked + services + group, "[172.16.0.2 172.16.0.9 fd00::3]"},
	} {
		text := "director: {client_device: eth0" + c.director + "}\n" + c.rest
		config, err := Parse("x.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := fmt.Sprint(config.Director.Peers); got != c.want {
			t.Errorf("%s: %s, want %s", text, got, c.want)
		}
		if config.VRRP != nil && fmt.Sprint(config.VRRP.Peers) != c.want {
			t.Errorf("%s: imbang vrrp has %s", text, config.VRRP.Peers)
		}
	}
	many := make([]string, 33)
	for i := range many {
		many[i] = fmt.Sprintf("172.16.1.%d", i)
	}
	for peers, want := range map[string]string{
		"[\"172.16.0.3:80\"]":                `x.yaml:1:41: director.peers[0]: "172.16.0.3:80": want the address of a director on a link of this one, without port, such as 172.16.0.3`,
		"[127.0.0.1]":                        `x.yaml:1:41: director.peers[0]: "127.0.0.1": want the address of a director on a link of this one, without port, such as 172.16.0.3`,
		"[172.16.0.3, 172.16.0.3]":           `x.yaml:1:53: director.peers[1]: 172.16.0.3 is given twice: remove one`,
		"[" + strings.Join(many, ", ") + "]": `x.yaml:1:40: director.peers: 33 addresses: want at most 32`,
	} {
		_, err := Parse("x.yaml", []byte("director: {client_device: eth0, peers: "+peers+"}\n"))
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", peers, err, want)
		}
	}
}
