// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// CPU A lets a half-open connection live for another minute; before it writes that, the
// client's ACK, on CPU B, makes it an established one, which lives for 15 minutes.
func TestRaceExpiryOfMoved(t *testing.T) {
	r := &recyclable{interleaved: newInterleaved(t), service: tcpService(vip, "rr")}
	r.addService(r.service, 1)
	r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S"))
	r.advance(time.Second)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_EXTEND, testenv.TCP(stranger, vip, "S"))
	r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "A"))
	r.wantStranger("ESTABLISHED", 15*time.Minute)
	a.finish()
	r.wantSound("after A's write")
	r.wantStranger("ESTABLISHED", 15*time.Minute)
}

// CPU A carries the client's FIN of a connection that it saw half open (expires in 60 s);
// before it moves the state, the client's ACK, on CPU B, established it (900 s). A makes it
// CLOSE_WAIT, which lives for 60 s.
func TestRaceExpiryOfMover(t *testing.T) {
	r := &recyclable{interleaved: newInterleaved(t), service: tcpService(vip, "rr")}
	r.addService(r.service, 1)
	r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "S"))
	r.advance(50 * time.Millisecond)
	a, _ := r.stopPacket(lbtest.LbHookPointPOINT_CONN_MOVE, testenv.TCP(stranger, vip, "FA").Options(1))
	r.fromClientOn(cpuB, testenv.TCP(stranger, vip, "A"))
	r.wantStranger("ESTABLISHED", 15*time.Minute)
	a.finish()
	r.wantSound("after A's write")
	r.wantStranger("CLOSE_WAIT", time.Minute)
}
