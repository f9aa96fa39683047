// SPDX-License-Identifier: Apache-2.0

//go:build proxy

package acceptance

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"imbang/internal/daemon/l7/haproxytest"
	"imbang/internal/daemon/vrrp/process"
	"imbang/internal/lab/topology"
)

// startVRRP starts imbang vrrp on both.
func (p *activePair) startVRRP() {
	for _, node := range p.nodes {
		c := node.begin("vrrp", "-c", node.path("imbang.yaml"))
		p.t.Cleanup(func() {
			_ = c.Process.Signal(syscall.SIGTERM)
			_ = c.Wait()
		})
	}
}

// masters are the groups that the nodes are masters of.
func (p *activePair) masters() (all [2]string) {
	for i, node := range p.nodes {
		var s process.Status
		o := imbang(p.t, node.host.Namespace(), "", "vrrp", "status", "-o", "json")
		_ = json.Unmarshal([]byte(o.stdout), &s)
		for _, g := range s.Groups {
			if g.State == "master" {
				all[i] += g.Name
			}
		}
	}
	return all
}

// Two hosts, each director and proxy node, with VRRP: each is master of one address, and backup of the
// other. Checks of a master by its backup are not balanced, no connection is balanced twice, and a
// planned move fails no request.
func TestLayer7VRRPPair(t *testing.T) {
	key := replicationKey(t)
	p := newActivePair(t, ", peers: [PEERS]", func(p *activePair, node int) string {
		text := fmt.Sprintf("synchronization:\n  replication: {role: pair, listen: %s, to: [%s], key_file: %s}\nvrrp:\n  groups:\n",
			topology.SyncAddress(node), topology.SyncAddress(1-node), key)
		for i := range 2 {
			priority := 150
			if node != i {
				priority = 100
			}
			text += fmt.Sprintf("    - {name: g%d, priority: %d, interval: 100 ms, routers: [{device: %s, id: %d, addresses: [%s/32]}, {device: %s, id: %d, addresses: [%q]}]}\n",
				i+1, priority, topology.ClientDevice, 51+i, p.virtual[topology.IPv4][i], topology.ClientDevice, 51+i, p.virtual[topology.IPv6][i].String()+"/128")
		}
		return text
	})
	for _, virtual := range p.virtual {
		for _, v := range virtual { // on the link, by ARP and neighbour discovery
			o := finish(t, p.network.Clients[0], exec.Command("ip", "route", "replace", netip.PrefixFrom(v, v.BitLen()).String(), "dev", "eth0"), "")
			if o.status != 0 {
				t.Fatalf("%+v", o)
			}
		}
	}
	p.startVRRP()
	p.nodes[0].await("each is a master", func() bool { return p.masters() == [2]string{"g1", "g2"} })
	for i := range p.nodes {
		p.nodes[i].await("all nodes are up", func() bool { return p.up(i) == 4*(1+2*4) })
	}
	p.each(20)
	// A planned move, and back.
	of := haproxytest.In(t, p.network.Clients[0])
	var loads []*haproxytest.Load
	for _, virtual := range p.virtual {
		for _, v := range virtual {
			for _, m := range nodeMethods[1:] {
				loads = append(loads, of.Load("http://"+netip.AddrPortFrom(v, m.port).String()+"/", 10))
			}
		}
	}
	time.Sleep(time.Second)
	p.nodes[0].do("failover")
	p.nodes[0].await("b has both", func() bool { return p.masters() == [2]string{"", "g1g2"} })
	time.Sleep(2 * time.Second)
	for i, load := range loads {
		all := load.Stop()
		if failed := haproxytest.Failed(all); len(failed) > 0 || len(all) < 20 {
			t.Errorf("load %d: %d of %d requests failed: %+v", i, len(failed), len(all), failed[:min(len(failed), 1)])
		}
	}
}

// One is master of all, and hears no other director: checks of the master by its backup are not
// balanced all the same.
func TestLayer7VRRPBackup(t *testing.T) {
	p := newActivePair(t, ", peers: [PEERS]", func(p *activePair, node int) string {
		var all [2][]string
		for i, f := range topology.Families {
			for _, v := range p.virtual[f] {
				all[i] = append(all[i], strconv.Quote(netip.PrefixFrom(v, v.BitLen()).String()))
			}
		}
		return fmt.Sprintf("vrrp:\n  groups:\n    - {name: all, priority: %d, interval: 100 ms, routers: [{device: %s, id: 51, addresses: [%s]}, {device: %[2]s, id: 51, addresses: [%[4]s]}]}\n",
			150-50*node, topology.ClientDevice, strings.Join(all[0], ", "), strings.Join(all[1], ", "))
	})
	p.startVRRP()
	p.nodes[0].await("a is master", func() bool { return p.masters() == [2]string{"all", ""} })
	for i := range p.nodes {
		p.nodes[i].await("all nodes are up", func() bool { return p.up(i) == 4*(1+2*4) })
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if up := [2]int{p.up(0), p.up(1)}; up != [2]int{36, 36} {
			t.Fatalf("up %v", up)
		}
	}
}
