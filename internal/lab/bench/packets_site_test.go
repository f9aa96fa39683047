// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"net/netip"
	"testing"

	"imbang/internal/director"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// sited is a case made ready, until the test ends.
func sited(t *testing.T, c packetCase) *packetSite {
	s, err := newPacketSite(c)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// totals are the counters of all services of a site.
func (s *packetSite) totals(t *testing.T) (sum model.Stats) {
	all, err := s.d.Services()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		sum.Conns += one.Stats.Conns
		sum.InPkts += one.Stats.InPkts
		sum.OutPkts += one.Stats.OutPkts
	}
	return sum
}

// entries are the connections of a site.
func (s *packetSite) entries(t *testing.T) (all []model.Connection) {
	for c, err := range s.d.Connections(director.ConnectionFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// Replies are of the servers that the connections have, to as many addresses as the case
// says, and each is counted.
func TestPacketSiteReplies(t *testing.T) {
	testenv.Root(t)
	const flows, addresses = 64, 16
	for _, family := range []string{ipv4, ipv6} {
		c := PacketsConfig{Packets: 1000, Rounds: 1}.reply(manyReplies, family, flows, addresses)
		s := sited(t, c)
		clients, servers := map[netip.Addr]bool{}, map[netip.AddrPort]int{}
		for _, one := range s.entries(t) {
			clients[one.Client.Addr()] = true
			servers[one.Server]++
			if one.State != "ESTABLISHED" {
				t.Errorf("%s: %+v", family, one)
			}
		}
		before := s.totals(t)
		if want := (model.Stats{Conns: flows, InPkts: 2 * flows, OutPkts: flows}); before != want || len(clients) != addresses || len(servers) != c.Servers {
			t.Errorf("%s: %+v, want %+v; clients %v, servers %v", family, before, want, clients, servers)
		}
		r, err := s.round("tc")
		if err != nil || r.Passed {
			t.Fatalf("%s: %+v, %v", family, r, err)
		}
		after := s.totals(t)
		if sent := uint64(c.Lead + c.Packets); after.OutPkts-before.OutPkts != sent || after.InPkts != before.InPkts || after.Conns != flows {
			t.Errorf("%s: %+v after %d replies, before %+v", family, after, sent, before)
		}
	}
}

// New connections are of all services and of other clients than those that fill the table.
func TestPacketSiteOpening(t *testing.T) {
	testenv.Root(t)
	const services, servers, packets = 16, 4, 1000
	config := PacketsConfig{Packets: packets, Rounds: 1}
	c := config.opening(byOpening, ipv4, servers, services)
	c.Addresses, c.Filled, c.Lead = services, 50, 0
	c.Connections = leastTable
	s := sited(t, c)
	full := s.totals(t)
	if want := uint64(leastTable * 49 / 100); full.Conns != want {
		t.Errorf("%d connections fill the table, want %d", full.Conns, want)
	}
	if _, err := s.round("tc"); err != nil {
		t.Fatal(err)
	}
	if now := s.totals(t); now.Conns != full.Conns+packets {
		t.Errorf("%d connections, were %d, want %d more", now.Conns, full.Conns, packets)
	}
	virtual, server := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	for _, one := range s.entries(t) {
		virtual[one.Virtual], server[one.Server] = true, true
	}
	if len(virtual) != services || len(server) != services*servers {
		t.Errorf("%d services with %d servers have connections, want %d and %d", len(virtual), len(server), services, services*servers)
	}
}

// What has to be sent in a buffer of its own is: each packet of a tunnel is as the first.
func TestPacketSiteTunnel(t *testing.T) {
	testenv.Root(t)
	const flows = 16
	c := PacketsConfig{Packets: 1000, Rounds: 1}.established(PacketKind{Measure: byTunnel, Traffic: requests, Family: ipv4,
		Forward: ipip, Scheduler: "rr", Services: 1, Servers: 3}, flows, flows)
	s := sited(t, c)
	if _, err := s.round("tc"); err != nil {
		t.Fatal(err)
	}
	if got, want := s.totals(t).InPkts, uint64(2*flows+c.Lead+c.Packets); got != want {
		t.Errorf("%d packets, want %d", got, want)
	}
	if _, err := s.round("xdp"); err != nil {
		t.Fatal(err)
	}
}
