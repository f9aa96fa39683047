// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Rules of the schedulers that need not a recording but a sentence. What a
// scheduler picks is seen in the packets it sends.

// schedRig has one service with servers A, B, ... so that the list, which
// begins with the latest added, is A B C.
type schedRig struct {
	*rig
	model.Service
	vip     string
	clients int // so many had a connection
	port    int // of the last shares
}

func (r *rig) schedule(vip, scheduler string, weights ...int32) *schedRig {
	r.Helper()
	s := tcpService(vip, scheduler)
	r.must(r.AddService(s))
	for i := len(weights) - 1; i >= 0; i-- {
		r.must(r.AddServer(s.Key, realServer(i, weights[i])))
	}
	return &schedRig{rig: r, Service: s, vip: vip}
}

// next opens n connections from new clients and says who got them.
func (s *schedRig) next(n int) string {
	s.Helper()
	var got []netip.AddrPort
	for range n {
		got = append(got, s.syn(s.newClient(), s.vip))
	}
	return names(got)
}

func (s *schedRig) newClient() string {
	s.clients++
	return nthClient(s.clients)
}

func (s *schedRig) want(n int, want string) {
	s.Helper()
	if got := s.next(n); got != want {
		s.Errorf("%s picks %s, want %s", s.Scheduler, got, want)
	}
}

func (s *schedRig) edit(i int, weight int32) {
	s.Helper()
	s.must(s.EditServer(s.Key, realServer(i, weight)))
}

func (s *schedRig) drop(i int) {
	s.Helper()
	s.must(s.DeleteServer(s.Key, realServer(i, 0).AddrPort()))
}

var schedTests = []struct {
	rule      string
	scheduler string
	weights   []int32
	check     func(s *schedRig)
}{
	{"rr: in turn, whatever the weights, but not weight 0", "rr", []int32{5, 0, 1, 2}, func(s *schedRig) {
		s.want(7, "ACDACDA")
	}},
	{"rr: the last pick is deleted: its predecessor was the last", "rr", []int32{1, 1, 1, 1}, func(s *schedRig) {
		s.want(2, "AB")
		s.drop(1)
		s.want(4, "CDAC")
	}},
	{"rr: the head is the last pick and is deleted: from the head", "rr", []int32{1, 1, 1}, func(s *schedRig) {
		s.want(1, "A")
		s.drop(0)
		s.want(3, "BCB")
	}},
	{"rr: one before the last pick is deleted: the turn stays", "rr", []int32{1, 1, 1, 1}, func(s *schedRig) {
		s.want(3, "ABC")
		s.drop(0)
		s.want(3, "DBC")
	}},
	{"rr: one behind the last pick is deleted: the turn stays", "rr", []int32{1, 1, 1, 1}, func(s *schedRig) {
		s.want(2, "AB")
		s.drop(2)
		s.want(3, "DAB")
	}},
	{"rr: the tail is the last pick and is deleted", "rr", []int32{1, 1, 1}, func(s *schedRig) {
		s.want(3, "ABC")
		s.drop(2)
		s.want(3, "ABA")
	}},
	{"rr: a new head waits for the end of the round", "rr", []int32{1, 1, 1}, func(s *schedRig) {
		s.want(1, "A")
		s.must(s.AddServer(s.Key, realServer(3, 1)))
		s.want(5, "BCDAB")
	}},
	{"rr: the only server, again and again", "rr", []int32{1}, func(s *schedRig) {
		s.want(3, "AAA")
	}},
	// The first server set wrr's bar to 1; a round for that comes first.
	{"wrr: 4, 3, 2 is interleaved as AABABCABC", "wrr", []int32{4, 3, 2}, func(s *schedRig) {
		s.want(3, "ABC")
		s.want(18, "AABABCABCAABABCABC")
	}},
	{"wrr: 5, 1, 1 is not smooth", "wrr", []int32{5, 1, 1}, func(s *schedRig) {
		s.want(3, "ABC")
		s.want(14, "AAAAABCAAAAABC")
	}},
	{"wrr: only the ratio of weights counts", "wrr", []int32{40, 30, 20}, func(s *schedRig) {
		s.want(3, "ABC")
		s.want(9, "AABABCABC")
	}},
	{"wrr: equal weights are rr", "wrr", []int32{7, 7, 7}, func(s *schedRig) {
		s.want(6, "ABCABC")
	}},
	{"wrr: a change of weight begins at the head", "wrr", []int32{1, 1, 1}, func(s *schedRig) {
		s.want(2, "AB")
		s.edit(2, 2)
		s.want(4, "ABCC")
	}},
	{"lc: the least connections; the head on a tie", "lc", []int32{1, 9, 1}, func(s *schedRig) {
		s.want(6, "ABCABC")
	}},
	{"wlc: the least connections for its weight", "wlc", []int32{1, 3, 2}, func(s *schedRig) {
		s.want(6, "ABCBCB")
	}},
	{"sed: the least (active + 1) / weight", "sed", []int32{1, 3, 2}, func(s *schedRig) {
		s.want(6, "BCBABC")
	}},
	{"nq: idle ones first, whatever the weight; then sed", "nq", []int32{1, 3, 2}, func(s *schedRig) {
		s.want(6, "ABCBBC")
	}},
	{"fo: the highest weight takes all", "fo", []int32{1, 3, 2}, func(s *schedRig) {
		s.want(3, "BBB")
		s.edit(1, 0)
		s.want(3, "CCC")
	}},
	{"fo: a tie goes to the head", "fo", []int32{2, 2}, func(s *schedRig) {
		s.want(2, "AA")
	}},
	{"ovf: the highest weight until it has more active connections than that", "ovf", []int32{1, 3, 2}, func(s *schedRig) {
		s.want(9, "BBBBCCCAA")
	}},
	{"lblc: a destination keeps its server until that has more active connections than weight while another has less than half", "lblc", []int32{2, 2}, func(s *schedRig) {
		s.want(9, "AAABBBBBB")
	}},
	{"lblc: also when its weight changes, but not with weight 0", "lblc", []int32{2, 9}, func(s *schedRig) {
		s.want(1, "A")
		s.edit(0, 1)
		s.want(1, "A")
		s.edit(0, 0)
		s.want(2, "BB")
		s.edit(0, 9)
		s.want(2, "BB")
	}},
	{"lblcr: another server helps, and the set shares", "lblcr", []int32{2, 2}, func(s *schedRig) {
		s.want(9, "AAABBBBAB")
	}},
	{"dh: the destination decides", "dh", []int32{1, 1, 1}, func(s *schedRig) {
		if got := s.next(9); strings.Count(got, got[:1]) != 9 {
			s.Errorf("one destination goes to %s", got)
		}
	}},
	{"dh: weight 0 is not replaced", "dh", []int32{0, 0}, func(s *schedRig) {
		got := s.reasonsOf(func() { s.fromClient(testenv.TCP(client1, s.vip, "S")) })
		if got["refused no server"] != 1 {
			s.Errorf("reasons: %v", got)
		}
	}},
}

func TestSchedulerRules(t *testing.T) {
	r := newRig(t, small)
	for i, c := range schedTests {
		t.Run(c.rule, func(t *testing.T) {
			c.check(r.in(t).schedule(nthVIP(i), c.scheduler, c.weights...))
		})
	}
}

// shares opens a connection from each of n client addresses and counts by
// server. Refused ones are "-".
func (s *schedRig) shares(n int) (counts map[string]int, byClient []string) {
	s.Helper()
	counts = map[string]int{}
	s.port++
	for i := range n {
		client := fmt.Sprintf("10.10.%d.%d:%d", i>>8, i&0xff, 2000+s.port)
		name := "-"
		if server, err := s.fromClient(testenv.TCP(client, s.vip, "S")).server(); err == nil {
			name = names([]netip.AddrPort{server})
		}
		counts[name]++
		byClient = append(byClient, name)
	}
	return counts, byClient
}

// changed counts the clients whose server is another, by who they had.
func changed(before, after []string) map[string]int {
	n := map[string]int{}
	for i := range before {
		if before[i] != after[i] {
			n[before[i]]++
		}
	}
	return n
}

// roughly is within a tenth of n clients, far more than chance brings.
func roughly(got, want, n int) bool { return got > want-n/10 && got < want+n/10 }

// sh: each server has as many of 256 buckets in a row as its weight, again
// and again; a client address is in one bucket. With weights 3 and 1 the
// shares are 192 and 64 buckets; a weight of 0 still takes one, which is dead
// (4 of 1 + 3 buckets: 192 alive) unless sh-fallback is on.
func TestSourceHashing(t *testing.T) {
	const n = 512
	r := newRig(t, small)
	s := r.schedule(vip, "sh", 3, 1)
	counts, first := s.shares(n)
	if !roughly(counts["A"], n*3/4, n) || !roughly(counts["B"], n/4, n) {
		t.Errorf("weights 3 and 1: %v of %d", counts, n)
	}
	if _, again := s.shares(n); len(changed(first, again)) != 0 {
		t.Errorf("with another port clients went elsewhere: %v", changed(first, again))
	}
	s.edit(1, 0)
	counts, dead := s.shares(n)
	if !roughly(counts["A"], n*3/4, n) || counts["B"] != 0 || counts["-"] == 0 {
		t.Errorf("weights 3 and 0: %v of %d", counts, n)
	}
	if got := changed(first, dead); len(got) != 1 || got["B"] == 0 {
		t.Errorf("other clients than those of the dead server are elsewhere: %v", got)
	}
	fallback := s.Service
	fallback.Flags = model.SchedFlag1
	r.must(r.EditService(fallback))
	if counts, _ := s.shares(n); counts["A"] != n {
		t.Errorf("sh-fallback: %v of %d", counts, n)
	}
	s.edit(1, 1)
	byPort := s.Service
	byPort.Flags = model.SchedFlag2
	r.must(r.EditService(byPort))
	_, one := s.shares(n)
	if _, other := s.shares(n); len(changed(one, other)) == 0 {
		t.Error("sh-port: another port changed nothing")
	}
}

// mh: shares by weight; a server that goes moves the clients of others only
// rarely; one that is made quiescent moves no other client.
func TestMaglev(t *testing.T) {
	const n = 512
	r := newRig(t, small)
	s := r.schedule(vip, "mh", 2, 1, 1)
	counts, first := s.shares(n)
	if !roughly(counts["A"], n/2, n) || !roughly(counts["B"], n/4, n) || !roughly(counts["C"], n/4, n) {
		t.Errorf("weights 2, 1, 1: %v of %d", counts, n)
	}
	s.edit(2, 0)
	_, quiet := s.shares(n)
	if got := changed(first, quiet); got["A"]+got["B"] != 0 || got["C"] != counts["C"] {
		t.Errorf("C has weight 0, and clients moved: %v", got)
	}
	s.edit(2, 1)
	if _, again := s.shares(n); len(changed(first, again)) != 0 {
		t.Errorf("C is back, and clients are elsewhere: %v", changed(first, again))
	}
	s.drop(2)
	_, without := s.shares(n)
	if got := changed(first, without); got["C"] != counts["C"] || got["A"]+got["B"] > n/10 {
		t.Errorf("C is gone, and clients moved: %v", got)
	}
	s.must(s.AddServer(s.Key, realServer(3, 1)))
	if got, _ := s.shares(n); !roughly(got["D"], n/4, n) {
		t.Errorf("D came: %v", got)
	}
}

// A service may change its scheduler while it has connections; the new one
// begins at the head.
func TestSchedulerChanges(t *testing.T) {
	r := newRig(t, small)
	s := r.schedule(vip, "rr", 300, 200, 100)
	s.want(2, "AB")
	for _, c := range []struct{ scheduler, want string }{
		{"wrr", "AABABC"}, {"rr", "ABC"}, {"fo", "AAA"}, {"rr", "ABC"},
	} {
		next := s.Service
		next.Scheduler = c.scheduler
		r.must(r.EditService(next))
		s.want(len(c.want), c.want)
	}
	for _, name := range model.SchedulerNames() {
		next := s.Service
		next.Scheduler = name
		r.must(r.EditService(next))
		s.next(5)
	}
	if n := r.entries(r.maps.BucketTables) + r.entries(r.maps.Maglevs); n > 1 {
		t.Errorf("%d tables of hashing schedulers are left", n)
	}
}
