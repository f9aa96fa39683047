// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/testenv"
)

// A merge goes on when the program is executed again meanwhile: the daemon, which does it, learns
// of it from the next program, which yields with the answer.
func TestMergeHandedOver(t *testing.T) { testenv.Patient(t, testMergeHandedOver) }

func testMergeHandedOver(t testing.TB) {
	link := newNetwork(t)
	groupA, groupB := slow(150), slow(100)
	groupA.Merge, groupB.Merge = time.Minute, time.Minute
	a := newNode(t, link.host(1), groupA).start()
	b := newNode(t, link.host(2), groupB).start()
	a.await("master", a.is(vrrp.Master))
	b.await("backup", func() bool { return b.group().Routers[0].Master != "" })
	link.ip(link.middle, "link", "set", "port2", "nomaster")
	b.await("a second master", b.is(vrrp.Master))
	link.ip(link.middle, "link", "set", "port2", "master", "br0")
	b.await("a merge", func() bool { return b.group().Merging })
	b.vanish(true)
	b.start()
	if g := b.group(); !g.Merging || g.State != vrrp.Master.String() {
		t.Fatalf("%+v", g)
	}
	d := startDaemon(b, true)
	b.await("the merge is requested", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return len(d.merges) == 1 })
	if want := (control.Merge{Group: "web", Number: 1, Peer: own4(1).String()}); d.merges[0] != want {
		t.Errorf("%+v, want %+v", d.merges[0], want)
	}
	d.client.Merged(d.merges[0])
	b.await("it yields", b.is(vrrp.Backup))
	if g := b.group(); g.Cause != "merged" || b.status().Groups[0].Counts.Became != 0 {
		t.Errorf("%+v", g)
	}
}

// What a version of the program handed over that did not number its requests awaits the first
// one.
func TestRecallOlder(t *testing.T) { testenv.Patient(t, testRecallOlder) }

func testRecallOlder(t testing.TB) {
	l := quietLoop(t, now(), "web")
	l.groups[0].setup.AwaitSync = true
	l.recall(&handover{Groups: map[string]vrrp.Snapshot{"web": {}}, Memory: map[string]memory{"web": {}}})
	l.facts = facts{control.Facts{}, now()}
	if l.awaited != 1 || l.groups[0].synchronized() {
		t.Errorf("it awaits number %d, and is synchronized without: %t", l.awaited, l.groups[0].synchronized())
	}
	l.facts.Synchronized = 1
	if !l.groups[0].synchronized() {
		t.Error("it never is")
	}
}
