// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"math"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// draws sends n datagrams of no connection, so that no load comes of them,
// and counts who got them.
func (r *rig) draws(n int) [3]float64 {
	r.Helper()
	var share [3]float64
	for i := range n {
		to, err := r.fromClient(testenv.UDP(fmt.Sprintf("10.10.%d.%d:53", 100+i>>8, i&0xff), farVIP, "x")).server()
		r.must(err)
		share[to.Addr().As4()[3]-10] += 1 / float64(n)
	}
	return share
}

// wantShares compares with what chance gives, within five standard errors:
// one run of two million fails for nothing.
func (r *rig) wantShares(n int, want ...float64) {
	r.Helper()
	got := r.draws(n)
	for i, p := range want {
		if math.Abs(got[i]-p) > 5*math.Sqrt(p*(1-p)/float64(n)) {
			r.Errorf("server %d gets %.3f of %d, want %.3f", i, got[i], n, p)
		}
	}
}

// Power of two choices: servers are drawn by weight, and of two the one with
// less to do is taken; weight 0 and thresholds keep servers out.
func TestTwos(t *testing.T) {
	const n = 4000
	r := newRig(t, small)
	s := service(model.UDP, farVIP, "twos")
	s.Flags |= model.OnePacket
	r.addService(s, 1, 0, 3)
	// All are idle: the first drawn stays. The list begins with server 2, whose
	// chance of 3 in 4 Linux makes 4 in 5.
	r.wantShares(n, 1./5, 0, 4./5)

	// As many connections for its weight as the other: still a tie. One more,
	// and server 2 is taken only when both draws are for it.
	busy := s
	busy.Flags = 0
	r.must(r.EditService(busy))
	connections := map[string]int{}
	for i := range 400 {
		to, err := r.fromClient(testenv.UDP(nthClient(i), farVIP, "x")).server()
		r.must(err)
		connections[to.Addr().String()]++
	}
	// Two draws from 1/5 and 4/5: balanced loads are 1 to 3 by weight, and
	// the draw's error is corrected by the load.
	if got := connections["172.16.0.12"]; got < 280 || got > 320 {
		t.Errorf("the server of three quarters of the weight has %d of 400 connections", got)
	}
	r.must(r.EditService(s), r.EditServer(s.Key, realServer(2, 1000)), r.EditServer(s.Key, realServer(0, 1000)),
		r.EditServer(s.Key, realServer(1, 1000)))
	// Server 1 is idle, and is taken unless neither draw is for it; of the
	// others, server 0 has fewer connections.
	r.wantShares(n, 3./9, 5./9, 1./9)

	full := realServer(1, 1000)
	full.Upper = 1
	r.must(r.EditServer(s.Key, full), r.EditService(busy))
	r.draws(40)
	if active, inactive := r.counts(s.Key, serverAddr(1)); active+inactive != 1 {
		t.Errorf("%d connections at a server that may have one", active+inactive)
	}
	for i := range 3 {
		r.must(r.EditServer(s.Key, realServer(i, 0)))
	}
	if got := r.fromClient(testenv.UDP("10.10.9.9:9", farVIP, "x")); got.verdict != redirect || got.frame[14+9] != 1 {
		t.Errorf("without weights: %s, want an ICMP error", got.verdict)
	}
}
