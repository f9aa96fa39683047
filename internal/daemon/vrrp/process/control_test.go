// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/daemon/vrrp/control"
	"imbang/internal/daemon/vrrp/setup"
	"imbang/internal/testenv"
)

// fakeDaemon reports facts to a node every 100 ms.
type fakeDaemon struct {
	mu     sync.Mutex
	facts  control.Facts
	synced bool // as of each Await
	await  uint64
	merges []control.Merge
	client *control.Client
	end    func()
}

func startDaemon(n *node, synced bool) *fakeDaemon {
	return startDaemonWith(n, synced, control.Facts{})
}

func startDaemonWith(n *node, synced bool, facts control.Facts) *fakeDaemon {
	d := &fakeDaemon{synced: synced, facts: facts}
	d.client = control.NewClient(control.Socket(n.dir), func(e control.Event) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if e.Await != 0 {
			d.await = e.Await
		}
		if e.Merge != nil {
			d.merges = append(d.merges, *e.Merge)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var under sync.WaitGroup
	under.Go(func() { d.client.Run(ctx) })
	under.Go(func() {
		for ctx.Err() == nil {
			d.mu.Lock()
			f := d.facts
			if d.synced {
				f.Synchronized = d.await
			}
			d.mu.Unlock()
			d.client.Report(f)
			time.Sleep(20 * time.Millisecond)
		}
	})
	d.end = sync.OnceFunc(func() { cancel(); under.Wait() })
	n.Cleanup(d.end)
	return d
}

func (d *fakeDaemon) change(f func(d *fakeDaemon)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

// stays fails if something ceases to be so within a time.
func (n *node) stays(what string, t time.Duration, f func() bool) {
	n.Helper()
	for end := time.Now().Add(t); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if !f() {
			n.Fatalf("%s: %+v", what, n.status())
		}
	}
}

// A director that comes back does not preempt before it has all connections, whatever
// becomes of its daemon; a master that dies is replaced at once.
func TestAwaitSynchronization(t *testing.T) { testenv.Patient(t, testAwaitSynchronization) }

func testAwaitSynchronization(t testing.TB) {
	link := newNetwork(t)
	group, worse := web(150, virtual4), web(100, virtual4)
	group.AwaitSync = true
	group.Interval, worse.Interval = calm, calm // one that stands still is replaced
	a := newNode(t, link.host(1), group)
	b := newNode(t, link.host(2), worse).start()
	b.await("master", b.is(vrrp.Master))
	a.start()
	a.await("a master is followed", func() bool { return a.group().Routers[0].Master != "" })
	a.stays("without a daemon it stays backup", 6*calm, a.is(vrrp.Backup))
	d := startDaemon(a, false)
	a.await("the daemon", func() bool { return a.status().Daemon })
	a.stays("without all connections it stays backup", 6*calm, a.is(vrrp.Backup))
	if g := a.group(); !g.AwaitsSync || g.Synchronized {
		t.Errorf("%+v", g)
	}
	d.end()
	a.stays("the daemon ended", 6*calm, a.is(vrrp.Backup))
	d = startDaemon(a, true)
	a.await("it preempts", a.is(vrrp.Master))

	b.await("backup", b.is(vrrp.Backup))
	d.end()
	b.stays("the daemon of the master ended", 6*calm, b.is(vrrp.Backup))
	a.vanish(false)
	b.await("master", b.is(vrrp.Master))
	a.start()
	a.stays("what was synchronized is not any more", 6*calm, a.is(vrrp.Backup))
	b.vanish(false)
	a.await("a dead master is replaced", a.is(vrrp.Master))
}

// A master that should not be one, as one without a data plane, is preempted without its
// connections if they cannot be received. Another master is not.
func TestMasterWithoutTable(t *testing.T) { testenv.Patient(t, testMasterWithoutTable) }

func testMasterWithoutTable(t testing.TB) {
	link := newNetwork(t)
	group, lowest := web(150, virtual4), web(vrrp.PriorityLowest, virtual4)
	group.AwaitSync = true
	a := newNode(t, link.host(1), group)
	b := newNode(t, link.host(2), lowest).start()
	b.await("master", b.is(vrrp.Master))
	a.start()
	d := startDaemon(a, false)
	a.await("the daemon", func() bool { return a.status().Daemon })
	a.stays("connections can be received", 6*interval, a.is(vrrp.Backup))
	b.configure(func(s *setup.Setup) { s.Groups[0].Priority = 100 })
	a.await("its priority is heard", func() bool { return a.group().Routers[0].Master != "" })
	time.Sleep(3 * interval)
	d.change(func(d *fakeDaemon) { d.facts.Apart = true })
	a.stays("the master is one", 6*interval, a.is(vrrp.Backup))
	b.configure(func(s *setup.Setup) { s.Groups[0].Priority = vrrp.PriorityLowest })
	a.await("it preempts", a.is(vrrp.Master))
}

// Facts are used for a time after the daemon's end. The table does not count as that of the
// master then.
func TestFactsExpire(t *testing.T) { testenv.Patient(t, testFactsExpire) }

func testFactsExpire(t testing.TB) {
	link := newNetwork(t)
	group, other := web(150, virtual4), web(100, virtual4)
	group.AwaitSync = true
	group.PreemptDelay = time.Hour
	group.Interval, other.Interval = time.Second, time.Second // a handover ends before the master counts as gone
	a := newNode(t, link.host(1), group)
	startDaemon(newNode(t, link.host(2), other).start(), true)
	a.start()
	d := startDaemon(a, true)
	a.await("synchronized", func() bool { return a.group().Synchronized })
	d.end()
	a.vanish(true) // what is handed over includes facts
	a.start()
	if s := a.status(); !s.Daemon || !s.Groups[0].Synchronized {
		t.Errorf("after a handover: %+v", s)
	}
	old := facts{Facts: control.Facts{Synchronized: 1}, At: now() - control.FactsHold}
	if at := (&loop{controlled: controlled{facts: old}}).expires(now()); at != 0 || old.fresh(now()) {
		t.Errorf("they are used for longer: %v", at)
	}
}

// The director whose daemon says that the other one sees more servers has the lowest
// priority, and still takes over from a dead one.
func TestYield(t *testing.T) { testenv.Patient(t, testYield) }

func testYield(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	b := newNode(t, link.host(2), web(100, virtual4)).start()
	d := startDaemon(a, true)
	a.await("master", a.is(vrrp.Master))
	b.await("backup", func() bool { return b.group().Routers[0].Master != "" })
	d.change(func(d *fakeDaemon) { d.facts = control.Facts{Yield: true, YieldReason: "2 of 4 servers"} })
	b.await("it takes over", b.is(vrrp.Master))
	a.await("backup", a.is(vrrp.Backup))
	if s := a.status(); s.Yields != "2 of 4 servers" || s.Groups[0].Priority != 1 {
		t.Errorf("%+v", s)
	}
	d.end()
	a.stays("without the daemon it still yields", 6*interval, a.is(vrrp.Backup))
	b.vanish(false)
	a.await("a dead master is replaced", a.is(vrrp.Master))
	b.start()
	a.await("it yields again", a.is(vrrp.Backup))
	d = startDaemonWith(a, true, control.Facts{YieldUndecided: true})
	a.await("the daemon runs again", func() bool { return a.status().Daemon })
	a.stays("and does not know yet whether it yields", 6*interval, a.is(vrrp.Backup))
	d.change(func(d *fakeDaemon) { d.facts = control.Facts{} })
	a.await("it does not yield any more", a.is(vrrp.Master))
}

// command gives groups up as the command does.
func (n *node) giveUp(patience time.Duration, groups ...string) (moves []control.Move, err error) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	c, err := control.Dial(ctx, control.Socket(n.dir))
	if err != nil {
		n.Fatal(err)
	}
	defer c.Close()
	err = c.GiveUp(ctx, groups, func(m control.Move) { moves = append(moves, m) })
	return moves, err
}

// A planned move goes to the other director at once, both ways and whatever the priorities
// are, and the director that gave up does not take the addresses back.
func TestPlannedMove(t *testing.T) {
	for name, pair := range map[string]bool{"a pair": true, "any number": false} {
		testenv.PatientRun(t, name, func(t testing.TB) {
			link := newNetwork(t)
			groupA, groupB := web(150, virtual4), web(100, virtual4)
			groupA.Pair, groupB.Pair = pair, pair
			six := setup.Router{Device: "eth0", ID: 52, Addresses: virtual6}
			groupA.Routers, groupB.Routers = append(groupA.Routers, six), append(groupB.Routers, six)
			a := newNode(t, link.host(1), groupA).start()
			b := newNode(t, link.host(2), groupB).start()
			all := groupA.AllAddresses()
			a.await("master", a.is(vrrp.Master))
			b.await("backup", func() bool { return b.group().Routers[0].Master != "" })
			if _, err := b.giveUp(awaited); err == nil || !strings.Contains(err.Error(), "this director is not master") {
				t.Errorf("%v", err)
			}
			if _, err := a.giveUp(awaited, "mail", "web"); err == nil || !strings.Contains(err.Error(), "there is no group mail") || !a.is(vrrp.Master)() {
				t.Errorf("%v", err)
			}
			for from, to := range map[*node]*node{a: b, b: a} {
				if !from.is(vrrp.Master)() {
					from, to = to, from
				}
				moves, err := from.giveUp(awaited, "web")
				if err != nil || len(moves) != 1 || moves[0].Error != "" || moves[0].MS <= 0 || pair && moves[0].MS > 1000 {
					t.Fatalf("%+v, %v", moves, err)
				}
				t.Logf("%+v", moves[0])
				to.await("it has the addresses", func() bool { return has(t, to.ns, all...) == len(all) && has(t, from.ns, all...) == 0 })
				cause := vrrp.CauseResigned
				if pair {
					cause = vrrp.CauseTake
				}
				if g := to.group(); g.Cause != cause.String() || g.Counts.OtherMasters > 0 {
					t.Errorf("%+v", g)
				}
				from.stays("it does not take them back", 6*interval, from.is(vrrp.Backup))
			}

			b.await("the first director has them again", func() bool { return a.is(vrrp.Master)() })
			if _, err := a.giveUp(awaited); err != nil {
				t.Fatal(err)
			}
			a.vanish(true)
			a.start()
			a.stays("a handover does not take them back", 6*interval, func() bool { return a.is(vrrp.Backup)() && a.group().GaveUp })
			c, err := control.Dial(t.Context(), control.Socket(a.dir))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if names, err := c.Reclaim(t.Context(), nil); err != nil || len(names) != 1 {
				t.Errorf("%q, %v", names, err)
			}
			a.await("it takes them back", a.is(vrrp.Master))
			b.await("and the other one leaves", b.is(vrrp.Backup))
			b.stop()
			moves, err := a.giveUp(awaited)
			if err != nil || len(moves) != 1 || moves[0].Error != "no other director took over: this one is master again" {
				t.Errorf("%+v, %v", moves, err)
			}
		})
	}
}

// When messages pass again after a split, the worse master yields when the better one has its
// connections, or after the bound.
func TestMergeBeforeYield(t *testing.T) {
	for name, answered := range map[string]bool{"merged": true, "merge took too long": false} {
		testenv.PatientRun(t, name, func(t testing.TB) {
			link := newNetwork(t)
			groupA, groupB := web(150, virtual4), web(100, virtual4)
			groupA.Merge, groupB.Merge = time.Second, time.Second
			if answered {
				groupB.Merge = awaited
			}
			a := newNode(t, link.host(1), groupA).start()
			b := newNode(t, link.host(2), groupB).start()
			d := startDaemon(b, true)
			a.await("master", a.is(vrrp.Master))
			b.await("backup", b.is(vrrp.Backup))
			link.ip(link.middle, "link", "set", "port2", "nomaster")
			b.await("a second master", b.is(vrrp.Master))
			link.ip(link.middle, "link", "set", "port2", "master", "br0")
			b.await("a merge", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return len(d.merges) > 0 })
			if !b.group().Merging {
				t.Errorf("%+v", b.group())
			}
			if answered {
				b.stays("it waits", 4*interval, b.is(vrrp.Master))
				wrong := d.merges[0]
				wrong.Number++
				d.client.Merged(wrong)
				b.stays("it waits for the merge that it asked for", 2*interval, b.is(vrrp.Master))
				d.client.Merged(d.merges[0])
			}
			b.await("it yields", b.is(vrrp.Backup))
			if g := b.group(); g.Cause != name {
				t.Errorf("%+v", g)
			}
			if !a.is(vrrp.Master)() || a.group().Counts.Left > 0 {
				t.Errorf("%+v", a.group())
			}
		})
	}
}

// A second request for a group that moves waits for the same move, and does not end the first.
func TestGivenUpTwice(t *testing.T) { testenv.Patient(t, testGivenUpTwice) }

func testGivenUpTwice(t testing.TB) {
	link := newNetwork(t)
	a := newNode(t, link.host(1), web(150, virtual4)).start()
	b := newNode(t, link.host(2), web(100, virtual4)).start()
	a.await("master", a.is(vrrp.Master))
	b.await("backup", func() bool { return b.group().Routers[0].Master != "" })
	c, err := control.Dial(t.Context(), control.Socket(a.dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if err := c.Send(control.Message{GiveUp: &control.Groups{}}); err != nil {
			t.Fatal(err)
		}
	}
	for replies, moved := 0, false; replies < 2 || !moved; {
		e, err := c.Receive(time.Now().Add(awaited))
		if err != nil {
			t.Fatalf("%v after %d replies", err, replies)
		}
		if e.Reply != nil {
			if replies++; e.Reply.Error != "" || len(e.Reply.Groups) != 1 {
				t.Errorf("%+v", e.Reply)
			}
		}
		moved = moved || e.Moved != nil
	}
}
