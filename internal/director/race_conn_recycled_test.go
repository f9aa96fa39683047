// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// An element of the connection table is used again at once: the next connection
// that the CPU opens which removed the last. In each of these tests an operation
// on CPU A has found the first client's connection and is stopped; CPU B removes
// that connection, and a stranger's gets its element; then A goes on.

const stranger = "10.10.0.99:9999"

// recyclable is a service with two servers, of which the first client's can be
// deleted with its connections.
type recyclable struct {
	*interleaved
	service model.Service
	victim  model.Server // the first client's
}

func newRecyclable(t *testing.T) *recyclable {
	t.Helper()
	r := &recyclable{interleaved: newInterleaved(t), service: tcpService(vip, "rr")}
	r.turn("expire_nodest_conn=1")
	r.addService(r.service, 1, 1)
	server := r.establish(client1, vip)
	r.victim = model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}
	return r
}

// recycle ends the first client's connection, as its server is deleted, and opens
// the stranger's, all on CPU B.
func (r *recyclable) recycle() {
	r.Helper()
	r.onCPU(cpuB, func() error { return r.DeleteServer(r.service.Key, r.victim.AddrPort()) })
	if n := r.entries(r.maps.Conns4); n != 0 {
		r.Fatalf("%d connections, when their server was deleted", n)
	}
	if got := r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S")); got.verdict != redirect {
		r.Fatalf("the stranger's SYN: %s", got.verdict)
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
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_MOVE, testenv.TCP(client1, vip, "R"))
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

// Likewise on the whole path, by a packet after which little time is left: the
// stranger's connection ends early.
func TestRaceEarlyEndOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_EXTEND, testenv.TCP(client1, vip, "R"))
	r.recycle()
	a.finish()
	r.wantSound("after A's write")
	r.wantStranger("SYN_RECV", time.Minute)
	r.wantOver()
}

// A writes another timer entry: the stranger's connection leaves its own, and
// never expires.
func TestRaceTimerOfRecycled(t *testing.T) {
	r := newRecyclable(t)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_TICK, testenv.TCP(client1, vip, "R"))
	r.recycle()
	a.finish()
	r.wantSound("after A's write")
	r.wantStranger("SYN_RECV", time.Minute)
	r.wantOver()
}
