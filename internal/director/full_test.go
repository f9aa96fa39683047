// SPDX-License-Identifier: Apache-2.0

package director

import "testing"

// Servers can be deleted, and edited, where there is no room for another one.
func TestDeleteFromFullTable(t *testing.T) {
	const most = 64
	r := newRig(t, Sizes{Services: 4, Servers: most, Connections: 1024})
	s := tcpService(vip, "wlc")
	r.must(r.AddService(s))
	for i := range most {
		r.must(r.AddServer(s.Key, realServer(i, 1)))
	}
	if err := r.AddServer(s.Key, realServer(most, 1)); err == nil {
		t.Error("one more than fits")
	}
	for i := range most {
		if err := r.DeleteServer(s.Key, realServer(i, 1).AddrPort()); err != nil {
			t.Fatalf("server %d: %v", i, err)
		}
	}
	r.wantClean("empty again")
}
