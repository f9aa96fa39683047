// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/testenv"
)

// missing is the fault of a connection whose replies have no entry.
func missing(e *entry) suspect {
	return suspect{kind: AuditRepliesMissing, family: e.Flow.Family, flow: e.Flow, number: e.at, id: e.Server, hash: incarnation(&e.LbConn)}
}

// stray is the fault of an entry of replies without a connection.
func stray(e *entry) suspect {
	s := missing(e)
	s.kind = AuditRepliesStray
	return s
}

// repairs corrects one fault and returns the result.
func (x *interleaved) repairs(s suspect) (did string) {
	x.Helper()
	x.onCPU(cpuB, func() (err error) { did, err = x.repairOne(s); return err })
	return did
}

// The auditor has found a stray entry of replies. Before the repair, the next connection gets the same
// flow and the same two lines. The repair keeps its entry.
func TestRepairStrayRepliesOfNext(t *testing.T) {
	x := newListed(t)
	x.establishOn(cpuB, client1, vip)
	former := x.replies()
	x.pass(16 * time.Minute)
	x.establishOn(cpuB, client1, vip)
	now := x.replies()
	if len(former) != 1 || len(now) != 1 {
		t.Fatalf("%+v became %+v", former, now)
	}
	if f, n := former[0], now[0]; f.Flow != n.Flow || f.at != n.at || f.Server != n.Server || incarnation(&f.LbConn) == incarnation(&n.LbConn) {
		t.Fatalf("%+v became %+v: the test shows nothing", f, n)
	}
	if did := x.repairs(stray(&former[0])); did != repairChanged {
		t.Errorf("the entry of before: %s, want %s", did, repairChanged)
	}
	wantReplies(t, x.rig, server0, client1, vip)
	x.wantSound("after the repair")
	x.wantOver()
}

// A hairpin lacks the entry of its replies, and no port is left for it: the repair reports that it was
// not done. The next repair enters one when a port is free.
func TestRepairHairpinWithoutPort(t *testing.T) {
	const seed, neighbour = 1, "172.16.0.30:40000"
	x := newInterleaved(t)
	x.sweepTable() // the table's clock has the time
	s := tcpService(vip, "rr")
	x.addService(s, 1)
	x.turn("hairpin=1")
	syn := testenv.TCP(neighbour, vip, "S")
	x.Seed(seed)
	first, server, err := testenv.Ends(x.fromServerOn(cpuB, syn).frame)
	x.must(err)
	x.fromServerOn(cpuB, testenv.TCP(server0, first.String(), "SA"))
	x.fromServerOn(cpuB, testenv.TCP(neighbour, vip, "A"))
	replies := x.replies()
	if len(replies) != 1 {
		t.Fatalf("%+v: the test shows nothing", replies)
	}
	x.must(x.removeConn(&replies[0]))
	others := hairpinsFrom(first, server, s.Key)
	x.insert(others)
	hairpin, lines := x.conn(syn), x.linesInUse()
	repair := func() string {
		x.Seed(seed)
		return x.repairs(missing(&hairpin))
	}
	if did := repair(); did != repairMissing {
		t.Errorf("without a port: %s, want %s", did, repairMissing)
	}
	if n := x.linesInUse(); n != lines {
		t.Errorf("%d lines are in use, %d were", n, lines)
	}
	ended := others[hairpinTries/2]
	x.fromServerOn(cpuB, testenv.TCP(ended.Client.String(), vip, "R"))
	x.pass(20 * time.Second)
	if did := repair(); did != repairDone {
		t.Errorf("with a port: %s, want %s", did, repairDone)
	}
	director, _, err := testenv.Ends(x.fromServerOn(cpuB, testenv.TCP(neighbour, vip, "A")).frame)
	x.must(err)
	if director != ended.Hairpin {
		t.Errorf("the director speaks from %s, want %s, the only port that is left", director, ended.Hairpin)
	}
	x.wantSound("after the repair")
}
