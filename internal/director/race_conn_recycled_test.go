// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// A line of the connection table is used again at once: by the next connection that the CPU
// opens which has its block. In each of these tests an operation on CPU A has found the first
// client's connection and is stopped; CPU B removes that connection, and a stranger's gets its
// line; then A continues.

const stranger = "10.10.0.99:9999"

// recyclable is a service with two servers, of which the first client's can be
// deleted with its connections.
type recyclable struct {
	*interleaved
	service model.Service
	victim  model.Server // the first client's
	former  entry        // the first client's
}

func newRecyclable(t *testing.T) *recyclable {
	t.Helper()
	r := &recyclable{interleaved: newInterleaved(t), service: tcpService(vip, "rr")}
	r.turn("expire_nodest_conn=1")
	r.addService(r.service, 1, 1)
	server := r.establishOn(cpuB, client1, vip)
	r.victim = model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}
	r.former = r.conn(testenv.TCP(client1, vip, "A"))
	return r
}

// recycle ends the first client's connection, as its server is deleted, and opens
// the stranger's, all on CPU B.
func (r *recyclable) recycle() {
	r.Helper()
	r.onCPU(cpuB, func() error { return r.DeleteServer(r.service.Key, r.victim.AddrPort()) })
	r.openStranger("their server was deleted")
}

// openStranger opens the stranger's connection in the first client's line.
func (r *recyclable) openStranger(after string) {
	r.Helper()
	if n := r.conns(); n != 0 {
		r.Fatalf("%d connections, when %s", n, after)
	}
	if got := r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S")); got.verdict != redirect {
		r.Fatalf("the stranger's SYN: %s", got.verdict)
	}
	if at := r.conn(testenv.TCP(stranger, vip, "S")).Index; at != r.former.Index {
		r.Fatalf("the stranger's connection has line %d, not %d, which was the first client's", at, r.former.Index)
	}
}

// establishStranger completes the stranger's handshake.
func (r *recyclable) establishStranger() {
	r.Helper()
	server := serverAddr(0).String() + ":8080"
	if server == r.victim.AddrPort().String() {
		server = serverAddr(1).String() + ":8080"
	}
	r.fromServerOn(cpuB, testenv.TCP(server, stranger, "SA"))
	r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "A"))
}

// wantStranger checks that the stranger's connection is what its own packets made
// of it.
func (r *recyclable) wantStranger(state string, expires time.Duration) {
	r.Helper()
	before, err := monotonic()
	r.must(err)
	got := r.connection(stranger)
	if got.State != state {
		r.Errorf("the stranger's connection is %s, want %s", got.State, state)
	}
	after, err := monotonic()
	r.must(err)
	// The listing reads the kernel's clock, not this test's, between the two readings here.
	least := got.Expires + time.Duration(before) - r.Time()
	most := least + time.Duration(after-before)
	if most < expires-2*time.Second || least > expires+2*time.Second {
		r.Errorf("the stranger's connection ends in %s to %s, want %s", least.Round(time.Second), most.Round(time.Second), expires)
	}
}

// A ends the connection, too: it marks the stranger's dead, and takes one from the
// old server's counts once more.
func TestRaceKillOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	r.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_KILL, testenv.TCP(client1, vip, "S"))
	r.recycle()
	a.finish()
	r.wantSound("after A's kill")
	r.wantStranger("SYN_RECV", time.Minute)
	r.wantOver()
}

// A changes the state by a packet of the first client's: the stranger's state
// changes, and the old server's counts.
func TestRaceStateOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_MOVE, testenv.TCP(client1, vip, "R").Options(1)) // past the fast path
	r.recycle()
	r.establishStranger()
	a.finish()
	r.wantSound("after A's change of state")
	r.wantStranger("ESTABLISHED", 15*time.Minute)
	r.wantOver()
}

// Likewise on the fast path.
func TestRaceFastStateOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_FAST, testenv.TCP(client1, vip, "FA"))
	r.recycle()
	r.establishStranger()
	a.finish()
	r.wantSound("after A's change of state")
	r.wantStranger("ESTABLISHED", 15*time.Minute)
	r.wantOver()
}

// A sets a flag by a reply to the first client, which is proven by it.
func TestRaceMarkOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	a := r.stop(lbtest.LbHookPointPOINT_CONN_MARK, func() error {
		// To the whole path, by an option that the fast one leaves.
		_, err := r.serverRun(testenv.TCP(r.victim.AddrPort().String(), client1, "A").Options(1))
		return err
	})
	r.recycle()
	r.establishStranger()
	want := r.conn(testenv.TCP(stranger, vip, "S"))
	a.finish()
	r.wantSame("after A's flag", want)
	r.wantSound("after A's flag")
	r.wantOver()
}

// wantSame checks that the stranger's entry is as it was. in_packets may count a packet of the first
// client's (bpf/conn_entry.h, rule 1a).
func (r *recyclable) wantSame(when string, want entry) {
	r.Helper()
	got := r.conn(testenv.TCP(stranger, vip, "S"))
	if got.InPackets = want.InPackets; got != want {
		r.Errorf("%s: the stranger's entry is %+v, it was %+v", when, got, want)
	}
}

// A writes when the connection expires: the stranger's lives as long as the first
// client's would.
func TestRaceExpiryOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	r.advance(time.Second)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_COUNT, testenv.TCP(client1, vip, "A"))
	r.recycle()
	a.finish()
	r.wantSound("after A's write")
	r.wantStranger("SYN_RECV", time.Minute)
	r.wantOver()
}

// Likewise, and the stranger's connection ends at the very time at which the first
// client's did: the incarnation distinguishes them.
func TestRaceExpiryOfSameTime(t *testing.T) {
	for name, at := range map[string]lbtest.LbHookPoint{"fast path": lbtest.LbHookPointPOINT_CONN_COUNT, "whole path": lbtest.LbHookPointPOINT_CONN_EXTEND} {
		t.Run(name, func(t *testing.T) {
			r := newRecyclable(t)
			r.advance(time.Second)
			packet := testenv.TCP(client1, vip, "A")
			if at == lbtest.LbHookPointPOINT_CONN_EXTEND {
				packet = packet.Options(1) // which the fast path leaves
			}
			a, _ := r.stopPacket(at, packet)
			r.advance(-time.Second) // the clock of CPU B is behind
			r.recycle()
			r.establishStranger()
			want := r.conn(testenv.TCP(stranger, vip, "S"))
			if a, b := r.former.Expires, want.Expires; a>>16 != b>>16 || a == b {
				t.Fatalf("the first client's connection ended at %#x, the stranger's at %#x: want the same time, and another incarnation", a, b)
			}
			a.finish()
			r.wantSame("after A's write", want)
			r.wantSound("after A's write")
			r.wantOver()
		})
	}
}

// Likewise on the whole path, by a packet after which little time is left: the
// stranger's connection ends early.
func TestRaceEarlyEndOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	r.timeouts(20*time.Second, bpfobj.LbConnStateTCP_ESTABLISHED)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_EXTEND, testenv.TCP(client1, vip, "A").Options(1)) // past the fast path
	r.recycle()
	a.finish()
	r.wantSound("after A's write")
	r.wantStranger("SYN_RECV", time.Minute)
	r.wantOver()
}

// The sweep of CPU A has found that the first client's connection is over, and is about to end
// it. That of CPU B ends it, and the stranger's gets its line.
func TestRaceSweepOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	r.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	r.advance(11 * time.Second) // CLOSE lasts 10 s
	a := r.stop(lbtest.LbHookPointPOINT_CONN_DUE, r.sweepRun)
	r.sweepTable()
	r.openStranger("their time was over")
	want := r.conn(testenv.TCP(stranger, vip, "S"))
	a.finish()
	r.wantSame("after the sweep", want)
	r.wantSound("after the sweep")
	r.wantOver()
}

// Likewise, and a packet of the first client's ends the connection, and opens the next one of
// the same flow in its line.
func TestRaceSweepOfSuccessor(t *testing.T) {
	r := newRecyclable(t)
	r.fromClientOn(cpuB, testenv.TCP(client1, vip, "R"))
	r.advance(11 * time.Second)
	a := r.stop(lbtest.LbHookPointPOINT_CONN_DUE, r.sweepRun)
	syn := testenv.TCP(client1, vip, "S")
	if got := r.fromClientOn(cpuB, syn); got.verdict != redirect {
		t.Fatalf("the SYN: %s", got.verdict)
	}
	want := r.conn(syn)
	if want.Index != r.former.Index || want.Expires == r.former.Expires {
		t.Fatalf("the next connection is %+v, the former one was %+v: want another in its line", want, r.former)
	}
	a.finish()
	if got := r.conn(syn); got != want {
		t.Errorf("after the sweep the next connection is %+v, it was %+v", got, want)
	}
	r.wantSound("after the sweep")
	r.wantOver()
}
