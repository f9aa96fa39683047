// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/host"
)

// A role whose interface was removed and made anew ends, or goes on with the new one.
func TestInterfaceThatIsMadeAnew(t *testing.T) {
	a, b := twoNodes(t, few)
	a.role(Master, b.addr)
	backup, ended := b.run(Config{
		Role: Backup, Listen: netip.AddrPortFrom(b.addr, 0), To: []netip.AddrPort{netip.AddrPortFrom(a.addr, 0)}, Interface: "eth0", KeyFile: b.key, Group: 7,
	})
	follows := func() bool {
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if backup.State().Master.Following {
				return true
			}
		}
		return false
	}
	if !follows() {
		t.Fatal("the backup has no master")
	}
	b.must(b.ns.DeleteLink("eth0"))
	b.must(host.Connect(host.End{NS: a.ns, Name: "eth0"}, host.End{NS: b.ns, Name: "eth0"}, host.LinkOptions{}))
	for _, n := range []*node{a, b} {
		n.must(n.ns.AddAddresses("eth0", netip.PrefixFrom(n.addr, 24)))
	}
	select {
	case err := <-ended:
		t.Logf("it ended: %v", err)
	case <-time.After(10 * time.Second):
		if !follows() {
			t.Errorf("it neither ended nor follows: %+v", backup.State().Alarms)
		}
	}
}
