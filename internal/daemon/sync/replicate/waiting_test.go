// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// also if that ended while the backup was away.
func TestWaitingEntryThatEnded(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	server := netip.AddrPortFrom(serverAddr(model.IPv4, 0), 8080)
	b.must(b.d.DeleteServer(s.Key, server))
	_, stop := a.role(Master, b.addr)
	backup, _ := b.role(Backup, a.addr)
	a.insert(connection(s, 0))
	until := func(what string, ok func(State) bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !ok(backup.State()); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the backup is %+v", what, backup.State())
			}
		}
	}
	until("waits", func(s State) bool { return s.Waiting == 1 })
	first := backup.State().Master.Session
	stop() // the connection ends while no master sends
	a.must(a.d.Set(director.Setting{Name: "expire_nodest_conn", Value: 1}))
	a.must(a.d.DeleteServer(s.Key, server))
	for deadline := time.Now().Add(patience); len(a.table()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the master's connection does not end")
		}
	}
	a.must(a.d.AddServer(s.Key, model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}))
	a.role(Master, b.addr)
	until("has the master's table again", func(s State) bool { return s.Master.Synced && s.Master.Session != first })
	b.must(b.d.AddServer(s.Key, model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}))
	time.Sleep(3 * look)
	if lines := b.table(); len(lines) != 0 {
		t.Errorf("the backup has %v, the master has none", lines)
	}
}
