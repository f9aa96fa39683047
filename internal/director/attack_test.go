// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"
	"time"

	"imbang/internal/testenv"
)

// siege is a director in virtual time that takes so many half-open connections
// for an attack.
type siege struct {
	*rig
	v   *Virtual
	now time.Duration
}

func newSiege(t *testing.T, limit uint32, settings ...string) *siege {
	r, v := newVirtual(t, tcpService(vip, "rr"), 1)
	set, err := v.d.config()
	r.must(err)
	set.HalfOpenLimit = limit
	r.must(putConfig(v.d.maps.Config, set))
	for _, s := range settings {
		one, err := ParseSetting(s)
		r.must(err, v.d.Set(one))
	}
	return &siege{r, v, VirtualStart}
}

// tick lets time pass, tick by tick.
func (s *siege) tick(d time.Duration) {
	s.Helper()
	s.must(s.ns.Do(func() error {
		for end := s.now + d; s.now < end; {
			s.now += VirtualTick
			if err := s.v.SetTime(s.now); err != nil {
				return err
			}
			if err := s.v.Sweep(); err != nil {
				return err
			}
		}
		return nil
	}))
}

// syns sends them from clients i to n, and reports how many were challenged.
func (s *siege) syns(i, n int) (challenged int) {
	s.Helper()
	before, err := s.v.d.handshakes()
	s.must(err)
	s.must(s.ns.Do(func() error {
		for ; i < n; i++ {
			if _, err := s.v.FromClient(testenv.TCP(nthClient(i), vip, "S").Frame()); err != nil {
				return err
			}
		}
		return nil
	}))
	after, err := s.v.d.handshakes()
	s.must(err)
	return int(after.Challenged - before.Challenged)
}

// answer has the clients' handshakes completed.
func (s *siege) answer(i, n int) {
	s.Helper()
	s.must(s.ns.Do(func() error {
		for ; i < n; i++ {
			if _, err := s.v.FromServer(testenv.TCP(serverAddr(0).String()+":8080", nthClient(i), "SA").Frame()); err != nil {
				return err
			}
			if _, err := s.v.FromClient(testenv.TCP(nthClient(i), vip, "A").Frame()); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (s *siege) attack() Attack {
	s.Helper()
	a, err := s.v.d.Attack()
	s.must(err)
	return a
}

func (s *siege) want(now bool, count uint32, when string) {
	s.Helper()
	if a := s.attack(); a.Now != now || a.Count != count {
		s.Errorf("%s: %+v, want %t, the number %d", when, a, now, count)
	}
}

// Half-open connections make an attack at the next tick, and its end comes
// when they are gone, some seconds later.
func TestAttackBeginsAndEnds(t *testing.T) {
	s := newSiege(t, 100)
	s.syns(0, 100)
	s.tick(VirtualTick)
	s.want(false, 0, "as many as there may be")
	s.syns(100, 103)
	s.want(false, 0, "before the tick")
	if n := s.syns(103, 105); n != 0 {
		t.Errorf("%d were challenged before", n)
	}
	s.tick(VirtualTick)
	s.want(true, 1, "after the tick")
	if n := s.syns(200, 300); n != 100 {
		t.Errorf("%d of 100 were challenged", n)
	}
	if a := s.attack(); a.HalfOpen < 100 || a.HalfOpen > 105 {
		t.Errorf("half open: %d, want 105", a.HalfOpen)
	}
	s.tick(30 * time.Second)
	s.want(true, 1, "while they are half open")
	s.tick(35 * time.Second)
	s.want(false, 1, "when they are gone")
	if n := s.syns(300, 310); n != 0 {
		t.Errorf("%d were challenged after the end", n)
	}
}

// Handshakes that are completed make none, however many there are.
func TestManyConnectionsAreNoAttack(t *testing.T) {
	s := newSiege(t, 100)
	for i := 0; i < 3000; i += 90 {
		s.syns(i, i+90)
		s.answer(i, i+90)
		s.tick(VirtualTick)
		s.want(false, 0, fmt.Sprint(i+90))
	}
	if a := s.attack(); a.HalfOpen != 0 {
		t.Errorf("half open: %d", a.HalfOpen)
	}
}

// An attack goes on for as long as SYNs from spoofed addresses come, though
// no connection comes of them.
func TestAttackGoesOnWhileChallenged(t *testing.T) {
	s := newSiege(t, 100)
	s.syns(0, 105)
	s.tick(VirtualTick)
	for i := range 90 { // seconds
		s.syns(1000+10*i, 1010+10*i)
		s.tick(time.Second)
		s.want(true, 1, fmt.Sprintf("second %d", i))
	}
	s.tick(10 * time.Second)
	s.want(false, 1, "10 s after the last")
}

// The kernel's own timer judges, and the settings show it.
func TestAttackInRealTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	if got := r.mode("syn_defence"); got != automatic {
		t.Fatalf("syn_defence is %d at first", got)
	}
	const limit = 100
	r.halfOpenLimit(limit)
	r.flood(2*limit, func(i int) testenv.Packet { return testenv.TCP(nthClient(i), vip, "S") })
	r.atLast(time.Minute, "an attack", func() bool { return r.mode("syn_defence") == atWork })
	st, err := r.Status()
	r.must(err)
	if a := st.Attack; !a.Now || !a.Defended || a.Count != 1 || a.Limit != limit || time.Since(a.Began) > time.Minute {
		t.Errorf("status: %+v", a)
	}
	r.turn("syn_defence=never")
	if v := r.fromClient(testenv.TCP(nthClient(1000), vip, "S")); v.verdict != redirect || testenv.CheckSums(v.frame) != nil {
		t.Errorf("without the defence: %s", v.verdict)
	}
	r.syn(nthClient(1001), vip)
	r.turn("syn_defence=2") // as it is shown
	if reasons := r.reasonsOf(func() { r.fromClient(testenv.TCP(nthClient(1002), vip, "S")) }); reasons["drop challenged"] != 1 {
		t.Errorf("with it again: %v", reasons)
	}
}

// As many as there may be by the room, and no more than a busy director has.
func TestHalfOpenLimit(t *testing.T) {
	for room, want := range map[uint32]uint32{0: 0, 64: 8, 1 << 15: 4096, 1 << 17: 16384, 1 << 20: 16384} {
		if got := halfOpenLimit(room); got != want {
			t.Errorf("room for %d: %d, want %d", room, got, want)
		}
	}
}

// forgetProofs makes all clients unproven.
func (s *siege) forgetProofs() error {
	keys, _, err := hashAll[[16]byte, [16]byte](s.v.d.maps.Proofs, hashBatch)
	if err == nil && len(keys) > 0 {
		_, err = s.v.d.maps.Proofs.BatchDelete(keys, nil)
	}
	return err
}

// What was asked by one slot's clock is answered within the next.
func TestCookieGrowsOld(t *testing.T) {
	const slot = 1 << 32 * time.Nanosecond
	s := newSiege(t, 0, "syn_defence=always")
	ask := func() (cookie uint32) {
		s.must(s.ns.Do(func() error {
			if _, err := s.v.FromClient(testenv.TCP(client1, vip, "S").Frame()); err != nil {
				return err
			}
			tcp := ipv4.tcpOf(s.v.Output())
			cookie = uint32(tcp[8])<<24 | uint32(tcp[9])<<16 | uint32(tcp[10])<<8 | uint32(tcp[11])
			return nil
		}))
		return cookie
	}
	answer := func(cookie uint32) (fate Fate) {
		s.must(s.ns.Do(func() (err error) {
			fate, err = s.v.FromClient(reset(ipv4, client1, vip, cookie))
			return err
		}))
		return fate
	}
	for _, c := range []struct {
		begin, after time.Duration
		want         Fate
	}{
		{3 * slot, 0, Dropped},
		{6*slot - 1, 1, Dropped},
		{9*slot - 1, slot, Dropped},
		{12 * slot, 2*slot - 1, Dropped},
		{15 * slot, 2 * slot, Passed},
		{19 * slot, 600 * slot, Passed},
	} {
		s.must(s.forgetProofs(), s.v.SetTime(c.begin))
		cookie := ask()
		s.must(s.v.SetTime(c.begin + c.after))
		if got := answer(cookie); got != c.want {
			t.Errorf("after %s: %d, want %d", c.after, got, c.want)
		}
	}
}

// Other keys, other questions.
func TestSecretIsASecret(t *testing.T) {
	seen := map[uint32]bool{}
	for range 2 {
		r := newRig(t, small)
		r.addService(tcpService(vip, "rr"), 1)
		r.turn("syn_defence=always")
		seen[r.cookie(ipv4, testenv.TCP(client1, vip, "S").MACs(routerMAC, clientDevMAC), r.fromClient(testenv.TCP(client1, vip, "S").MACs(routerMAC, clientDevMAC)))] = true
	}
	if len(seen) != 2 {
		t.Error("two directors ask alike")
	}
}
