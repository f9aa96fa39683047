// SPDX-License-Identifier: Apache-2.0

package director

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/bpfobj/lbtest"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// newListed is a rig with a service whose server's replies have entries, as another service has the
// server.
func newListed(t *testing.T) *interleaved {
	t.Helper()
	x := newInterleaved(t)
	x.sweepTable() // the table's clock has the time: an audit compares with it
	x.addService(tcpService(otherVIP, "rr"), 1)
	x.addService(tcpService(vip, "rr"), 1)
	return x
}

// A reply has found its entry, whose line a stranger's replies get before it is read: the
// reply counts as none of the stranger's.
func TestRaceRepliesRecycled(t *testing.T) {
	x := newListed(t)
	server := x.establishOn(cpuB, client1, vip).String()
	former := x.replies()
	var v result
	a := x.stop(lbtest.LbHookPointPOINT_REPLIES_FOUND, func() (err error) {
		v, err = x.serverRun(testenv.TCP(server, client1, "FA"))
		return err
	})
	x.advance(16 * time.Minute)
	x.sweepTable() // the client's connection ends
	for _, p := range []testenv.Packet{testenv.TCP(stranger, vip, "S"), testenv.TCP(stranger, vip, "A")} {
		x.fromClientOn(cpuB, p)
	}
	if now := x.replies(); len(former) != 1 || len(now) != 1 || now[0].at != former[0].at {
		t.Fatalf("%+v became %+v: the test shows nothing", former, now)
	}
	a.finish()
	if got := x.connection(stranger).State; got != "ESTABLISHED" {
		t.Errorf("a reply to another client leaves the stranger's connection in %s (it: %s)", got, v.verdict)
	}
	x.wantSound("after the reply")
	x.wantOver()
}

// A connection is in the table, and the entry of its replies is not yet; the sweep ends it. Nothing
// is left of its replies.
func TestRaceRepliesOfEnded(t *testing.T) {
	x := newListed(t)
	a, got := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERTED, testenv.TCP(client1, vip, "S"))
	x.pass(5 * time.Minute)
	if n := x.conns(); n != 0 {
		t.Errorf("%d connections after the sweep", n)
	}
	a.finish()
	if got.verdict != redirect {
		t.Errorf("the packet: %s", got.verdict)
	}
	x.wantSound("after both")
	x.wantNothingLeft("after both")
}

// Likewise, and the same client opens another one before: the replies are that one's.
func TestRaceRepliesOfNext(t *testing.T) {
	x := newListed(t)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERTED, testenv.TCP(client1, vip, "S"))
	x.pass(5 * time.Minute)
	server := x.establishOn(cpuB, client1, vip).String()
	a.finish()
	if v := x.fromServerOn(cpuB, testenv.TCP(server, client1, "A")).verdict; v != redirect {
		t.Errorf("a reply: %s", v)
	}
	x.wantSound("after both")
	x.wantOver()
}

// Two connections whose replies have the same flow are opened at once: the later one has the entry, and the
// other one is not said to have one.
func TestRaceRepliesOfTwo(t *testing.T) {
	x := newListed(t)
	third := nthVIP(3)
	x.addService(tcpService(third, "rr"), 1)
	a, _ := x.stopPacket(lbtest.LbHookPointPOINT_CONN_INSERTED, testenv.TCP(client1, vip, "S"))
	x.fromClientOn(cpuB, testenv.TCP(client1, third, "S"))
	a.finish()
	x.wantSound("after both")
	if n := len(x.replies()); n != 1 {
		t.Errorf("%d entries of replies", n)
	}
	wantForwarded(t, x.fromServerOn(cpuB, testenv.TCP(server0, client1, "SA")),
		testenv.TCP(vip, client1, "SA").TTL(63).MACs(clientDevMAC, routerMAC))
	x.wantOver()
}

// behind lets a connection end while the bucket of its replies is claimed: their entry stays behind. It
// returns that.
func (x *interleaved) behind(client, service string) entry {
	x.Helper()
	x.establishOn(cpuB, client, service)
	c := x.entryOf(fromFlow4(flowOf(testenv.TCP(client, service, "A"))))
	r, err := x.repliesOf(&c)
	x.must(err)
	if r == nil || x.bucketOf(r.Flow) == x.bucketOf(c.Flow) {
		x.Fatalf("%+v has the replies %+v, whose bucket is to be another's", c, r)
	}
	n := x.bucketOf(r.Flow)
	x.claim(n)
	x.fromClientOn(cpuB, testenv.TCP(client, service, "R"))
	x.wait(11 * time.Second) // CLOSE lasts 10 s
	x.unclaim(n)
	if len(x.replies()) != 1 || x.conns() != 0 {
		x.Fatalf("%d entries of replies, %d connections", len(x.replies()), x.conns())
	}
	return *r
}

// unclaim ends the claim of a bucket.
func (x *interleaved) unclaim(n uint32) {
	x.Helper()
	did, err := x.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_CLAIM, Number: n, From: x.bucketLine(n)[0]})
	if did != repairDone {
		x.Fatalf("the claim: %s, %v", did, err)
	}
}

// listedClient is a client whose connections to services are of other buckets than their replies.
func (x *interleaved) listedClient(services ...string) string {
	x.Helper()
	for i := 0; ; i++ {
		back := flowOf(testenv.TCP(server0, nthClient(i), "S"))
		back.Template = flowReplies
		if !slices.ContainsFunc(services, func(service string) bool {
			return x.bucketOf(fromFlow4(flowOf(testenv.TCP(nthClient(i), service, "S")))) == x.bucketOf(fromFlow4(back))
		}) {
			return nthClient(i)
		}
	}
}

// An entry of replies that is left behind counts as absent, and the sweep removes it.
func TestRepliesLeftBehind(t *testing.T) {
	x := newListed(t)
	client := x.listedClient(vip)
	x.behind(client, vip)
	if v := x.fromServerOn(cpuB, testenv.TCP(server0, client, "A")).verdict; v != pass {
		t.Errorf("a reply of no connection: %s", v)
	}
	report, err := x.Audit(t.Context(), AuditOptions{Interval: time.Millisecond})
	x.must(err)
	if len(report.Findings) == 0 || report.Findings[0].Kind != AuditRepliesStray.String() {
		t.Errorf("the audit: %+v", report.Findings)
	}
	x.wait(9 * time.Second)
	x.wantNothingLeft("swept")
	x.wantOver()
}

// Likewise, or the next connection with the same replies replaces it: the same one, a hairpin with the same
// port, or one whose replies need no entry.
func TestRepliesTakenOver(t *testing.T) {
	x := newListed(t)
	client := x.listedClient(vip)
	x.behind(client, vip)
	x.establishOn(cpuB, client, vip)
	x.wantSound("the same client again")
	if n := len(x.replies()); n != 1 {
		t.Errorf("%d entries of replies", n)
	}
	x.wantOver()
	x.behind(client, vip)
	x.establishOn(cpuB, client, otherVIP)
	x.wantSound("by the first service")
	x.wantOver()
	x.wantNothingLeft("in the end")
}

// A connection that needs no entry of its replies removes another connection's entry of the same
// replies. If the bucket of that entry cannot be claimed, the new connection is refused: its replies
// would be forwarded as the other's.
func TestRepliesCleared(t *testing.T) {
	x := newListed(t)
	client := x.listedClient(vip, otherVIP)
	x.establishOn(cpuB, client, vip)
	former := x.replies()
	if len(former) != 1 {
		t.Fatalf("%+v: the test shows nothing", former)
	}
	n := x.bucketOf(former[0].Flow)
	x.claim(n)
	reasons := x.reasonsOf(func() {
		if v := x.fromClientOn(cpuB, testenv.TCP(client, otherVIP, "S")).verdict; v != drop {
			t.Errorf("while the bucket is claimed: %s", v)
		}
	})
	x.unclaim(n)
	if diff := cmp.Diff(map[string]uint64{"drop table full": 1}, reasons); diff != "" {
		t.Error(diff)
	}
	if conns := x.conns(); conns != 1 {
		t.Errorf("%d connections, want the former one", conns)
	}
	x.wantSound("refused")
	wantReplies(t, x.rig, server0, client, vip)

	x.establishOn(cpuB, client, otherVIP)
	if replies := x.replies(); len(replies) != 0 {
		t.Errorf("left: %+v", replies)
	}
	if e := x.conn(testenv.TCP(client, vip, "A")); e.Flags&connListed != 0 {
		t.Errorf("%+v is said to have an entry of its replies", e)
	}
	x.wantSound("open")
	wantReplies(t, x.rig, server0, client, otherVIP)
	x.wantOver()
}

// The entry of replies lives as long as its connection, however long that is.
func TestRepliesStay(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			x := newInterleaved(t)
			x.sweepTable()
			x.serve(service(model.TCP, at(f.vip(1), 80), "rr"), f.real(0, 8080))
			x.serve(service(model.TCP, at(f.vip(2), 80), "rr"), f.real(0, 8080))
			client, vip, server := at(f.client, 1234), at(f.vip(2), 80), at(f.server(0), 8080)
			x.establishOn(cpuB, client, vip)
			for range 3 {
				x.pass(10 * time.Minute)
				if v := x.fromServerOn(cpuB, testenv.TCP(server, client, "A")).verdict; v != redirect {
					t.Fatalf("a reply: %s", v)
				}
				x.wantSound("after ten minutes more")
			}
			x.wantAudited("alive")
			x.wantOver()
		})
	}
}

// A connection with an entry of its replies takes the room of two. In a full table it displaces as many,
// wherever their lines are; with one free line alone, and nothing to displace, it is refused and
// takes none.
func TestRoomForReplies(t *testing.T) {
	x := newInterleavedSized(t, crowdedSizes)
	x.addService(tcpService(calmVIP, "rr"), 1)
	x.addService(service(model.UDP, vip, "rr"), 1)
	x.addService(tcpService(otherVIP, "rr"), 1) // its replies have entries
	x.crowd(func(i int) testenv.Packet { return testenv.UDP(crowdedClient(i), vip, "x") })
	for i := range 8 {
		if v := x.fromClientOn(i%2, testenv.TCP(nthClient(i), otherVIP, "S")).verdict; v != redirect {
			t.Errorf("connection %d: %s", i, v)
		}
		x.wantSound("in a full table")
	}
	if n := x.displaced(); n != 16 {
		t.Errorf("%d connections were displaced, want 16", n)
	}
	x.wantOver()

	for i := 0; x.freeLines(model.IPv4) > 1; i++ {
		x.fromClientOn(cpuB, testenv.TCP(nthClient(1000+i), calmVIP, "S"))
	}
	reasons := x.reasonsOf(func() {
		if v := x.fromClientOn(cpuB, testenv.TCP(client1, otherVIP, "S")).verdict; v != drop {
			t.Errorf("without room for its replies: %s", v)
		}
	})
	if reasons["drop table full"] != 1 || x.freeLines(model.IPv4) != 1 {
		t.Errorf("%v, %d lines are free", reasons, x.freeLines(model.IPv4))
	}
	x.wantSound("refused")
	x.wantAudited("refused")
}
