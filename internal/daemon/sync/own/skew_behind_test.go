// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// configurations.
func TestSkewIsNamedAfterFallingBehind(t *testing.T) {
	w := newWorld(t, 1, 0)
	master, backup := w.node(), w.node()
	master.config.Window, master.config.Store = 32, 128
	master.sender()
	backup.receiver()
	services := configuration()
	set := func(n *node, c []Service) {
		n.do(func(out *Output) {
			if n.send != nil {
				n.send.SetServices(n.clock(), c, out)
			} else {
				n.receive.SetServices(n.clock(), c, out)
			}
		})
	}
	set(master, services)
	set(backup, services)
	w.run(10 * time.Second)
	// The network is down while the master deletes a service.
	w.lose = func(Datagram) bool { return true }
	set(master, services[1:])
	for i := range 20_000 {
		master.put(conn(i))
	}
	w.run(100 * time.Millisecond)
	w.lose = nil
	set(backup, services[1:])
	w.run(20 * time.Second)
	if backup.count(EventFellBehind) == 0 || !backup.receive.State().Synced {
		t.Fatalf("the backup did not fall behind: %+v", backup.log)
	}
	backup.same(master)
	// Now they differ.
	set(backup, services[2:])
	w.run(time.Minute)
	if backup.count(EventSkew) == 0 {
		t.Error("a service that only the master has is not reported")
	}
}
