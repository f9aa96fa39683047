// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"testing"
)

// The made-up scheduler chooses by its rule, and all that it remembers goes with
// the server, the service, and the service's scheduler.
func TestMadeUpScheduler(t *testing.T) {
	r := newRig(t, small)
	s := r.schedule(vip, "stick", 1, 1)
	from := func(client, want string) {
		t.Helper()
		if got := names(r.connected(client)); got != want {
			t.Errorf("%s goes to %s, want %s", client, got, want)
		}
	}
	from("10.10.0.1", "A")
	s.edit(0, 0)
	from("10.10.0.2", "B")
	s.edit(0, 1)
	from("10.10.0.1", "A")
	from("10.10.0.2", "B")
	if svc := r.status(s.Key); svc.Scheduler != "stick" {
		t.Errorf("listed as %q", svc.Scheduler)
	}
	want := func(what string, elements int) {
		t.Helper()
		if n := r.entries(r.maps.Sticks); n != elements {
			t.Errorf("%s: %d clients are remembered, want %d", what, n, elements)
		}
	}
	want("at first", 2)
	id, ok := r.serverID(s.Key, realServer(0, 1).AddrPort())
	if !ok {
		t.Fatal("no server A")
	}
	r.must(r.forgetServers(map[uint32]bool{id: true}))
	want("without A", 1)
	other := s.Service
	other.Scheduler = "rr"
	r.must(r.EditService(other))
	want("by rr", 0)
	r.must(r.EditService(s.Service))
	from("10.10.0.3", "A")
	want("again", 1)
	r.must(r.DeleteService(s.Key))
	want("without the service", 0)
}

var madeUpPort = 1000

// connected is the server of a new connection from an address.
func (r *rig) connected(client string) []netip.AddrPort {
	r.Helper()
	madeUpPort++
	return []netip.AddrPort{r.syn(fmt.Sprintf("%s:%d", client, madeUpPort), vip)}
}
