// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"imbang/internal/model"
)

// Both directors serve while they do not reach each other. When they do again each has the
// connections of both, within 2 s after the sessions are back; of one that both have with
// another server the later one stays, and is counted.
func TestPairSplit(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	var mine, theirs []model.Connection
	for i := range 1000 {
		mine = append(mine, connection(s, i))
		theirs = append(theirs, connection(s, 2000+i))
	}
	a.insert(mine[:500]...)
	b.insert(theirs[:500]...)
	one, _ := a.role(RolePair, b.addr)
	two, _ := b.role(RolePair, a.addr)
	wantEqual(a, b, "after joining")

	a.must(a.ns.Down("eth0"))
	apart := func(s State) bool { return !s.Master.Following }
	awaitState(t, one, "the directors are apart", apart)
	awaitState(t, two, "the directors are apart", apart)
	a.insert(mine[500:]...)
	b.insert(theirs[500:]...)
	earlier, later := connection(s, 5000), connection(s, 5000)
	later.Server = netip.AddrPortFrom(serverAddr(model.IPv4, 1), 8080)
	later.RealServer = later.Server
	if later.Server == earlier.Server {
		t.Fatal("the servers are the same")
	}
	a.insert(earlier)
	time.Sleep(3 * time.Second) // the earlier one counts as younger if it is read late
	b.insert(later)

	a.must(a.ns.Up("eth0"))
	awaitState(t, one, "the first one has the other one's table again", synced)
	awaitState(t, two, "the second one has the other one's table again", synced)
	wantEqual(a, b, "after the split")
	lines := a.table()
	if len(lines) != 2001 {
		t.Errorf("%d entries", len(lines))
	}
	if n := one.State().Conflicts; n.Replaced != 1 && two.State().Conflicts.Kept != 1 {
		t.Errorf("%+v, %+v", n, two.State().Conflicts)
	}
	for c, err := range a.d.Connections(anyEntry) {
		a.must(err)
		if c.Client == later.Client && c.Server != later.Server {
			t.Errorf("the earlier one stays: %+v", c)
		}
	}
	for r, n := range map[*Replica]*node{one: a, two: b} {
		if s := r.State(); s.Refused != 0 || s.Lost != 0 || slices.ContainsFunc(s.Alarms, func(x Alarm) bool { return x.Name != NoPeer }) {
			t.Errorf("%v is %+v", n.addr, s)
		}
	}
}
