// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/testenv"
)

// A reply has found its entry in the reverse table, whose element a stranger's
// connection gets before the client's flow is read: the reply counts as one to the
// stranger, and closes half of its connection.
func TestRaceReverseEntryRecycled(t *testing.T) {
	x := newInterleaved(t)
	x.addService(tcpService(vip, "rr"), 1)
	x.addService(tcpService(otherVIP, "rr"), 1) // the same server: its replies are in the table
	server := x.establish(client1, otherVIP).String()
	if n := x.entries(x.maps.Reverse4); n != 1 {
		x.Fatalf("%d reverse entries, want the client's", n)
	}
	var v result
	a := x.stop(lbtest.LbHookPointPOINT_REVERSE_FOUND, func() (err error) {
		v, err = x.serverRun(testenv.TCP(server, client1, "FA"))
		return err
	})
	x.advance(16 * time.Minute)
	x.sweepTable() // the client's connection ends
	for _, p := range []testenv.Packet{testenv.TCP(stranger, otherVIP, "S"), testenv.TCP(stranger, otherVIP, "A")} {
		x.fromClientOn(cpuB, p)
	}
	a.finish()
	if got := x.connection(stranger).State; got != "ESTABLISHED" {
		x.Errorf("a reply to another client leaves the stranger's connection in %s (it: %s)", got, v.verdict)
	}
	x.wantSound("after the reply")
	x.wantOver()
}
