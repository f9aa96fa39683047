// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// adopting sets whether an upgrade still enters connections into the table.
func (r *rig) adopting(is bool) {
	r.Helper()
	set, err := r.config()
	r.must(err)
	set.Adopting = 0
	if is {
		set.Adopting = 1
	}
	r.must(putConfig(r.maps.Config, set))
}

// wantVerdict sends a packet from the servers' side and checks its verdict and reason. A packet that
// is forwarded has the reason "".
func (r *rig) wantVerdict(what string, p testenv.Packet, want verdict, reason string) {
	r.Helper()
	wanted := map[string]uint64{}
	if reason != "" {
		wanted[reason] = 1
	}
	reasons := r.reasonsOf(func() {
		if v := r.fromServer(p).verdict; v != want {
			r.Errorf("%s: %s, want %s", what, v, want)
		}
	})
	if diff := cmp.Diff(wanted, reasons); diff != "" {
		r.Errorf("%s: %s", what, diff)
	}
}

// A new hairpin waits until all connections are adopted: one of those may have the port that it
// would get. Other clients of the service need not wait.
func TestAdoptingHairpin(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.turn("hairpin=1")
	syn := testenv.TCP("172.16.0.30:40000", vip, "S")
	r.adopting(true)
	r.wantVerdict("while adopting", syn, drop, "drop upgrade")
	if n := r.conns(); n != 0 {
		t.Errorf("%d connections", n)
	}
	r.syn(client1, vip)
	r.adopting(false)
	r.wantVerdict("adopted", syn, redirect, "")
	if n := r.hairpins(); n != 1 {
		t.Errorf("%d hairpins", n)
	}
	r.wantClean("adopted")
}

// A packet to no service from a server's address may be a reply of a connection that is still to be
// adopted, if connections had entries of their replies. A SYN is no reply. A server by direct
// routing sends no reply through the director.
func TestAdoptingReplies(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(tcpService(otherVIP, "rr"), 1) // has the same server: replies have entries
	r.serve(tcpService(nthVIP(5), "rr"), ipv4.direct(2, 80))
	const server, client = "172.16.0.10:9999", "10.10.0.3:1234" // of no reply that is known
	reply, begins := testenv.TCP(server, client, "A"), testenv.TCP(server, client, "S")
	r.adopting(true)
	r.wantVerdict("without entries of replies", reply, pass, "pass no connection")
	r.adopting(false)
	r.establish(client1, vip)
	r.establish(client1, otherVIP)
	r.adopting(true)
	r.wantVerdict("a reply", reply, drop, "drop upgrade")
	r.wantVerdict("a SYN", begins, pass, "pass no service")
	r.wantVerdict("a SYN to a service", testenv.TCP(server, vip, "S"), redirect, "")
	r.wantVerdict("a packet of a server by direct routing", testenv.TCP("172.16.0.12:9999", client, "A"), pass, "pass no connection")
	r.wantVerdict("a packet of no server", testenv.TCP("172.16.0.30:9999", client, "A"), pass, "pass no connection")
	r.adopting(false)
	r.wantVerdict("adopted: a reply", reply, pass, "pass no connection")
	r.wantVerdict("adopted: a SYN", begins, pass, "pass no service")
}

// The server of a firewall mark owns no replies: its connections have entries of them. An upgrade
// drops the replies until all connections are adopted. Then they are forwarded.
func TestUpgradeHoldsReplies(t *testing.T) {
	t.Parallel()
	const mark = 7
	r := newRig(t, small)
	r.serve(ipv4.marked(mark), ipv4.real(0, 8080))
	r.former()
	v := r.send(r.progs.LbClient, skBuff{Mark: mark}, testenv.TCP(client1, vip, "S").Frame())
	if to, err := v.server(); err != nil || to.String() != server0 {
		t.Fatalf("a SYN goes to %s: %v", to, err)
	}
	attached, err := r.progs.LbServer.Clone()
	r.must(err)
	defer attached.Close()
	context := r.arriving(r.progs.LbServer, skBuff{})
	reply := testenv.TCP(server0, client1, "SA")
	replies := func() (v result) {
		t.Helper()
		r.must(r.ns.Do(func() (err error) {
			v, err = run(attached, context, reply.Frame(), 0)
			return err
		}))
		return v
	}
	back := reply.From(vip).TTL(63).MACs(clientDevMAC, routerMAC)
	wantForwarded(t, replies(), back)
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "adopt the connections")
	var k killedBefore
	if !errors.As(err, &k) {
		t.Fatal(err)
	}
	wantUntouched(t, drop, replies(), reply.Frame())
	_, _, err = r.upgradeTo(ours(t), bpfobj.Fingerprint, "")
	r.must(err)
	r.open(Sizes{})
	wantForwarded(t, r.fromServer(reply), back)
	r.wantClean("upgraded")
}

// withUpper is server 0 with an upper threshold.
func withUpper(upper uint32) model.Server {
	s := realServer(0, 1)
	s.Upper = upper
	return s
}

// While connections are adopted, a server that had reached its upper threshold gets no new ones,
// although it counts few. Afterwards its count decides again.
func TestAdoptingThreshold(t *testing.T) {
	x := newInterleaved(t)
	s := tcpService(vip, "rr")
	x.serve(s, withUpper(4))
	for i := range 4 {
		x.establishOn(cpuB, nthClient(i), vip)
	}
	id, _ := x.serverID(s.Key, withUpper(4).AddrPort())
	// As judgeThresholds does.
	judge := func(when string, want bool) {
		t.Helper()
		did, err := x.runRepair(&bpfobj.LbRepair{Kind: bpfobj.LbRepairKindREPAIR_COUNTS, Server: id})
		if did != repairDone || err != nil {
			t.Errorf("%s: %s, %v", when, did, err)
		}
		if got := x.overloaded(id); got != want {
			t.Errorf("%s: overloaded %t, want %t", when, got, want)
		}
		to, err := x.fromClientOn(cpuB, testenv.TCP(nthClient(100), vip, "S")).server()
		if opens := err == nil && to == withUpper(4).AddrPort(); opens == want {
			t.Errorf("%s: a new connection opens: %t, %v", when, opens, err)
		}
	}
	judge("reached", true)
	x.adopting(true)
	for i := range 3 {
		x.fromClientOn(cpuB, testenv.TCP(nthClient(i), vip, "R"))
	}
	x.pass(20 * time.Second) // CLOSE lasts 10 s
	if active, inactive := x.counts(s.Key, serverAddr(0)); active+inactive != 1 {
		t.Fatalf("the server counts %d active, %d inactive connections", active, inactive)
	}
	if !x.overloaded(id) {
		t.Error("while adopting, a connection's end makes the server available")
	}
	judge("while adopting", true)
	x.adopting(false)
	judge("adopted", false)
}

// After an upgrade has entered all connections, it compares each server with its thresholds. A server
// with few connections left gets new ones. A server that still has all of them gets none.
func TestUpgradeJudgesThresholds(t *testing.T) {
	t.Parallel()
	const upper = 4
	for left, overloaded := range map[int]bool{upper: true, 1: false} {
		t.Run(fmt.Sprintf("%d left", left), func(t *testing.T) {
			r := newRig(t, small)
			s := tcpService(vip, "rr")
			r.serve(s, withUpper(upper))
			r.former()
			for i := range upper {
				r.establish(nthClient(i), vip)
			}
			if v, err := r.fromClient(testenv.TCP(nthClient(upper), vip, "S")).server(); err == nil {
				t.Fatalf("before: a new connection opens, to %s", v)
			}
			conns := r.mapNamed("conns4")
			_, _, err := r.upgradeToNth(ours(t), bpfobj.Fingerprint, "", 1, func(step string) {
				for i := left; i < upper && step == "adopt the connections"; i++ {
					if err := conns.Delete(flowOf(testenv.TCP(nthClient(i), vip, "A"))); err != nil {
						t.Error(err)
					}
				}
			})
			r.must(err)
			r.open(Sizes{})
			if active, _ := r.counts(s.Key, serverAddr(0)); int(active) != left {
				t.Fatalf("the server counts %d active connections", active)
			}
			id, _ := r.serverID(s.Key, withUpper(upper).AddrPort())
			if got := r.overloaded(id); got != overloaded {
				t.Errorf("overloaded %t, want %t", got, overloaded)
			}
			to, err := r.fromClient(testenv.TCP(nthClient(100), vip, "S")).server()
			if opens := err == nil && to == withUpper(upper).AddrPort(); opens == overloaded {
				t.Errorf("a new connection opens: %t, %v", opens, err)
			}
		})
	}
}
