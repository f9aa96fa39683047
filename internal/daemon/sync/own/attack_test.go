// SPDX-License-Identifier: Apache-2.0

package own

import (
	"hash"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// attacker sees all datagrams, and sends what it likes, but has no key.
type attacker struct {
	w    *world
	seen []recorded
	rng  *rand.Rand
}

type recorded struct {
	from netip.AddrPort
	b    []byte
}

func (w *world) attacker() *attacker {
	a := &attacker{w: w, rng: rand.New(rand.NewPCG(99, 1))}
	w.wire = func(from *node, d Datagram) { a.seen = append(a.seen, recorded{from.addr, slices.Clone(d.Bytes)}) }
	return a
}

// one makes a datagram of the attack.
func (a *attacker) one() recorded {
	x := a.seen[a.rng.IntN(len(a.seen))]
	x.b = slices.Clone(x.b)
	switch a.rng.IntN(6) {
	case 0: // replayed
	case 1: // replayed from elsewhere
		x.from = at("192.168.0.99:8790")
	case 2:
		x.b = x.b[:a.rng.IntN(len(x.b))]
	case 3: // forged: of the latest session, with a number to come
		x = a.seen[len(a.seen)-1]
		x.b = slices.Clone(x.b)
		x.b[23] += byte(1 + a.rng.IntN(100))
	case 4:
		x.b[a.rng.IntN(len(x.b))] ^= 1 << a.rng.IntN(8)
	case 5: // foreign
		for i := range x.b {
			x.b[i] = byte(a.rng.Uint32())
		}
	}
	return x
}

// flood sends so many in each millisecond to each node.
func (a *attacker) flood(until time.Duration, each int) {
	if a.w.now >= until {
		return
	}
	for range each {
		if len(a.seen) == 0 {
			break
		}
		x := a.one()
		for _, n := range a.w.nodes {
			if !n.down {
				a.w.deliver(x.from, n, x.b, a.w.now+time.Duration(a.rng.Int64N(int64(time.Millisecond)))+1)
			}
		}
	}
	a.w.at(a.w.now+time.Millisecond, func() { a.flood(until, each) })
}

func TestAttacksHaveNoEffect(t *testing.T) {
	for _, loss := range []float64{0, 0.05} {
		w := newWorld(t, 4, loss)
		a := w.attacker()
		// Sessions that end, to be replayed later.
		old, backup := w.node().sender(), w.node().receiver()
		old.load(w.now+time.Second, 2)
		w.run(2 * time.Second)
		old.sender()
		w.run(2 * time.Second)
		former := backup.receive.prove.id
		backup.receiver() // the former one is forgotten
		w.run(receiverLife + time.Second)
		backup.log, old.log = nil, nil

		old.load(w.now+5*time.Second, 2)
		a.flood(w.now+5*time.Second, 20)
		for range 50 { // nothing that is good waits
			c := conn(1<<22 + w.rng.IntN(1000))
			old.put(c)
			if w.run(100 * time.Millisecond); loss == 0 {
				if _, ok := backup.table[keyOf(&c)]; !ok {
					t.Fatal("an entry did not arrive")
				}
			}
		}
		late := w.node().receiver() // joins during the next attack
		a.flood(w.now+3*time.Second, 20)
		w.run(3 * time.Second)
		backup.same(old)
		late.same(old)
		if len(backup.log) != 0 || old.count(EventTwoMasters)+old.count(EventReceiverLost) != 0 || old.count(EventReceiverJoined) != 1 {
			t.Errorf("events: %+v, %+v", backup.log, old.log)
		}
		for _, r := range old.send.Receivers() {
			if r.ID == former {
				t.Error("a former receiver is registered by its recorded datagrams")
			}
		}
		receiver, sender := backup.receive.Counts(), old.send.Counts()
		for _, r := range []Reason{ReasonLength, ReasonForeign, ReasonForged, ReasonReplayed, ReasonSession, ReasonVersion, ReasonKind, ReasonGroup} {
			if receiver.Refused[r] == 0 || sender.Refused[r] == 0 {
				t.Errorf("%v: counted %d and %d times", r, receiver.Refused[r], sender.Refused[r])
			}
		}
		if receiver.Refused[ReasonMalformed]+sender.Refused[ReasonMalformed] != 0 {
			t.Error("something forged was read")
		}
		if sender.Refused[ReasonUnknown] == 0 {
			t.Error("acknowledgements of a former receiver are not counted")
		}
	}
}

// TestOldSessionIsNotFollowed is that a whole recorded session finds no receiver, though
// no sender is running.
func TestOldSessionIsNotFollowed(t *testing.T) {
	w := newWorld(t, 4, 0)
	a := w.attacker()
	old, backup := w.node().sender(), w.node().receiver()
	old.load(w.now+time.Second, 2)
	w.run(2 * time.Second)
	old.down = true
	w.run(2 * time.Second)
	for _, again := range []bool{false, true} { // the same receiver, and one that was restarted
		if again {
			clear(backup.table)
			backup.receiver()
			backup.log = nil
			w.run(time.Second)
		}
		before, followed := len(backup.table), backup.count(EventFollowing)
		began := w.now
		for i, x := range a.seen[:min(len(a.seen), 5000)] {
			w.deliver(x.from, backup, x.b, began+time.Duration(i)*time.Millisecond)
		}
		w.run(10 * time.Second)
		if backup.receive.State().Following || len(backup.table) != before || backup.count(EventFollowing) != followed {
			t.Errorf("follows a recording: %+v, %v", backup.receive.State(), backup.log)
		}
	}
	old.sender()
	w.run(time.Second)
	backup.same(old)
}

// TestRecordedBeatsKeepNoSessionAlive is that of a sender that has died.
func TestRecordedBeatsKeepNoSessionAlive(t *testing.T) {
	w := newWorld(t, 4, 0)
	a := w.attacker()
	old, backup := w.node().sender(), w.node().receiver()
	old.load(w.now+time.Second, 2)
	w.run(2 * time.Second)
	old.down = true
	for i, x := range a.seen[max(0, len(a.seen)-2000):] {
		w.deliver(x.from, backup, x.b, w.now+time.Duration(i)*time.Millisecond)
	}
	w.run(sessionLife + 100*time.Millisecond)
	if backup.count(EventSessionLost) != 1 {
		t.Errorf("events: %v", backup.log)
	}
}

// TestRecordedWelcome is that the proof of a session that has just ended is neither followed
// nor an alarm, though the nonce that it answers has not expired.
func TestRecordedWelcome(t *testing.T) {
	w := newWorld(t, 4, 0)
	a := w.attacker()
	old, backup := w.node().sender(), w.node().receiver()
	w.run(300 * time.Millisecond)
	if !backup.receive.State().Synced {
		t.Fatal("the receiver has not joined")
	}
	replay := func() (n int) {
		for _, x := range a.seen {
			if kind(x.b[4]) != kindWelcome {
				continue
			}
			n++
			for _, to := range w.nodes {
				w.deliver(x.from, to, x.b, w.now+time.Millisecond)
			}
		}
		w.run(100 * time.Millisecond)
		return n
	}
	old.do(func(out *Output) { old.send.Close(old.clock(), out) })
	w.run(10 * time.Millisecond)
	followed := backup.count(EventFollowing)
	if replay() == 0 {
		t.Fatal("no welcome was recorded")
	}
	if n := backup.count(EventFollowing); n != followed {
		t.Errorf("a session that has ended is followed: %+v", backup.log)
	}
	old.sender()
	w.run(400 * time.Millisecond)
	if !backup.receive.State().Synced {
		t.Fatalf("the next session is not followed: %+v", backup.receive.State())
	}
	replay()
	if backup.count(EventTwoMasters)+old.count(EventTwoMasters) != 0 {
		t.Errorf("events: %+v, %+v", backup.log, old.log)
	}
	if backup.receive.Counts().Refused[ReasonUnproved] == 0 {
		t.Error("not counted")
	}
}

// TestRecordedControl replays what each role sent, from another address: it must cause no
// traffic there but answers to challenges, and no new handshake.
func TestRecordedControl(t *testing.T) {
	w := newWorld(t, 4, 0.05)
	a := w.attacker()
	master, backup := w.node().sender(), w.node().receiver()
	master.load(w.now+40*time.Second, 2)
	w.run(2 * time.Second)
	loss := w.loss
	// The sender removes the receiver, which does not notice: only its datagrams are lost.
	w.loss, w.lose = 0, func(d Datagram) bool { return kind(d.Bytes[4]) == kindAck }
	w.run(receiverLife + time.Second)
	w.loss, w.lose = loss, nil
	w.run(2 * time.Second)
	resets := 0
	followed := backup.count(EventFollowing)
	elsewhere := at("192.168.0.99:8790")
	w.wire = func(_ *node, d Datagram) {
		if k := kind(d.Bytes[4]); d.To == elsewhere && k != kindWelcome && k != kindReset && k != kindHello {
			t.Errorf("a datagram of kind %d is sent to the attacker", k)
		}
	}
	for i, x := range a.seen[max(0, len(a.seen)-8000):] {
		if kind(x.b[4]) == kindReset {
			resets++
		}
		for _, n := range w.nodes {
			w.deliver(elsewhere, n, x.b, w.now+time.Duration(i)*time.Millisecond/4)
		}
	}
	w.run(5 * time.Second)
	if resets == 0 {
		t.Error("no reset was recorded")
	}
	if n := backup.count(EventFollowing); n != followed || backup.receive.State().Sender != master.addr {
		t.Errorf("%d handshakes, %d before; %+v", n, followed, backup.receive.State())
	}
	if r := master.send.Receivers(); len(r) != 1 || r[0].Addr != backup.addr {
		t.Errorf("receivers: %+v", r)
	}
	master.idle = true
	w.run(quiet)
	backup.same(master)
}

func TestOtherKeyAndGroup(t *testing.T) {
	w := newWorld(t, 4, 0)
	master, key, other := w.node(), w.node(), w.node()
	key.config.Key = []byte("another key that is long enough")
	other.config.Group = 6
	master.sender()
	key.receiver()
	other.receiver()
	master.load(time.Second, 2)
	w.run(2 * time.Second)
	if len(key.table)+len(other.table) != 0 || len(master.send.Receivers()) != 0 {
		t.Error("received without the key or in another group")
	}
	if key.receive.Counts().Refused[ReasonForged] == 0 || other.receive.Counts().Refused[ReasonGroup] == 0 || master.send.Counts().Refused[ReasonForged] == 0 {
		t.Error("not counted")
	}
}

// counting counts the tags that are made.
type counting struct {
	hash.Hash
	sums *int
}

func (c counting) Sum(b []byte) []byte { *c.sums++; return c.Hash.Sum(b) }

// TestRefusingCostsOneHMAC is that of each kind of attack, and none where a cheap check is
// enough.
func TestRefusingCostsOneHMAC(t *testing.T) {
	w := newWorld(t, 4, 0)
	a := w.attacker()
	master, backup := w.node().sender(), w.node().receiver()
	master.load(w.now+time.Second, 2)
	w.run(2 * time.Second)
	sums := 0
	master.send.sign.h = counting{master.send.sign.h, &sums}
	backup.receive.sign.h = counting{backup.receive.sign.h, &sums}
	free := map[Reason]bool{
		ReasonLength: true, ReasonForeign: true, ReasonVersion: true, ReasonKind: true, ReasonGroup: true, ReasonReplayed: true,
		ReasonWindow: true, ReasonUnproved: true,
	}
	refused, forged := 0, 0
	for range 50_000 {
		x := a.one()
		for _, receive := range []func(out *Output) Reason{
			func(out *Output) Reason { return master.send.receive(master.clock(), x.from, x.b, out) },
			func(out *Output) Reason { return backup.receive.receive(backup.clock(), x.from, x.b, out) },
		} {
			before := sums
			var out Output
			r := receive(&out)
			if r == accepted {
				continue
			}
			refused++
			cost := sums - before - len(out.Datagrams) // what is sent has one
			if cost > 1 || cost > 0 && free[r] {
				t.Fatalf("%v cost %d", r, cost)
			}
			if r == ReasonForged {
				forged++
			}
		}
	}
	if refused < 10_000 || forged < 1000 {
		t.Errorf("%d refused, %d of them forged", refused, forged)
	}
}
