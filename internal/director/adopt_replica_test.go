// SPDX-License-Identifier: Apache-2.0

package director

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
)

// An upgrade that enters connections and templates again keeps which of them are replicas: what
// their origin tells of them still applies, and what packets made of others stays.
func TestUpgradeOfLayoutKeepsReplicas(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	persists := persistent(tcpService("10.20.0.3:80", "rr"))
	r.addService(persists, 1, 1)
	r.former()
	own := r.establish("10.10.0.7:7", vip)
	clients := []string{client1, "10.10.0.3:3", "10.10.0.7:7"}
	replicas := []model.Connection{
		replica(s.Key, clients[0], "172.16.0.10:8080"), replica(s.Key, clients[1], "172.16.0.10:8080"),
	}
	template := replicaTemplate(persists.Key, "10.10.0.2", "172.16.0.10:8080")
	r.replicate(append(replicas, template)...)
	_, _, err := r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	r.open(Sizes{})
	marked := 0
	for _, c := range r.exported() {
		if is := c.Flags&model.ConnReplica != 0; is != (c.Client.String() != clients[2]) {
			t.Errorf("%s, template %t: a replica: %t", c.Client, c.Template, is)
		} else if is {
			marked++
		}
	}
	if marked != 3 {
		t.Errorf("%d replicas", marked)
	}
	// Replicate: of a replica, an earlier end applies.
	replicas[0].Expires, replicas[0].Idle = 100*time.Second, 800*time.Second
	r.replicate(replicas[0])
	if got := r.connection(clients[0]); got.Expires > 2*time.Minute {
		t.Errorf("a replica expires in %v", got.Expires)
	}
	// Merge: a replica goes to the server that it has there, a connection of this director stays.
	elsewhere := replicas[1]
	elsewhere.Server = netip.AddrPortFrom(serverAddr(1), 8080)
	elsewhere.RealServer, elsewhere.Idle = elsewhere.Server, 800*time.Second
	other := elsewhere
	other.Client = replica(s.Key, clients[2], "172.16.0.10:8080").Client
	if own == elsewhere.Server {
		other.Server = netip.AddrPortFrom(serverAddr(0), 8080)
		other.RealServer = other.Server
	}
	errs, _, err := r.Merge([]model.Connection{elsewhere, other}, false)
	r.must(err)
	if got := r.connection(clients[1]); got.Server != elsewhere.Server {
		t.Errorf("a replica stays with %s: %v", got.Server, errs)
	}
	if got := r.connection(clients[2]); got.Server != own {
		t.Errorf("a connection with %s went to %s: %v", own, got.Server, errs)
	}
}
