// SPDX-License-Identifier: Apache-2.0

package director

import (
	"strings"
	"testing"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Counters hold packets and IP bytes, each way, of service and server alike.
func TestCounters(t *testing.T) {
	r := newRig(t, small)
	s, other := tcpService(vip, "rr"), service(model.UDP, farVIP, "rr")
	r.addService(s, 1, 1)
	r.addService(other, 1)
	r.syn(client1, vip)                                                            // 44 bytes, to server 1
	r.fromServer(testenv.TCP("172.16.0.11:8080", client1, "SA"))                   // 44
	r.fromClient(testenv.TCP(client1, vip, "A"))                                   // 40
	r.fromClient(testenv.TCP(client1, vip, "PA").Payload(strings.Repeat("x", 60))) // 100
	r.fromServer(testenv.TCP("172.16.0.11:8080", client1, "PA").Options(2).Payload("ok"))
	r.syn("10.10.0.3:1", vip)                                         // to server 0
	r.fromClient(testenv.UDP(client1, farVIP, "hello"))               // 33
	r.fromClient(testenv.TCP(client1, vip, "A").TTL(1))               // counted, though it goes no further
	r.fromClient(testenv.TCP("10.10.0.4:1", vip, "A"))                // no connection: not counted
	r.fromServer(testenv.TCP("172.16.0.11:8080", "10.10.0.4:1", "A")) // likewise

	server1 := model.Stats{Conns: 1, InPkts: 4, InBytes: 44 + 40 + 100 + 40, OutPkts: 2, OutBytes: 44 + 50}
	server0 := model.Stats{Conns: 1, InPkts: 1, InBytes: 44}
	st := r.status(s.Key)
	if st.Servers[0].Stats != server1 || st.Servers[1].Stats != server0 {
		t.Errorf("servers: %+v and %+v, want %+v and %+v", st.Servers[0].Stats, st.Servers[1].Stats, server1, server0)
	}
	if want := add(server0, server1); st.Stats != want {
		t.Errorf("service: %+v, want %+v", st.Stats, want)
	}
	if got, want := r.status(other.Key).Stats, (model.Stats{Conns: 1, InPkts: 1, InBytes: 33}); got != want {
		t.Errorf("UDP service: %+v, want %+v", got, want)
	}
	r.must(r.Zero(nil))
	if n, err := r.ClientPackets(); err != nil || n != server0.InPkts+server1.InPkts+1 {
		t.Errorf("%d packets of clients, %v", n, err)
	}
}

func add(a, b model.Stats) model.Stats {
	return model.Stats{Conns: a.Conns + b.Conns, InPkts: a.InPkts + b.InPkts, InBytes: a.InBytes + b.InBytes,
		OutPkts: a.OutPkts + b.OutPkts, OutBytes: a.OutBytes + b.OutBytes}
}

// A super-packet (GSO) counts as the packets it becomes on the wire, and is
// too big only if those are.
func TestSuperPackets(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	r.syn(client1, vip)
	p := testenv.TCP(client1, vip, "A").DontFragment().Payload(strings.Repeat("x", 3000))
	if got := r.send(r.progs.LbClient, skBuff{GSOSize: 1460, GSOSegs: 3}, p.Frame()); got.verdict != redirect {
		t.Fatalf("segments of 1500 bytes: %s", got.verdict)
	} else if _, err := got.server(); err != nil {
		t.Errorf("segments of 1500 bytes: %v", err)
	}
	want := model.Stats{Conns: 1, InPkts: 1 + 3, InBytes: 44 + 3000 + 3*40}
	if got := r.status(s.Key).Stats; got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	got := r.reasonsOf(func() { r.send(r.progs.LbClient, skBuff{GSOSize: 1461, GSOSegs: 3}, p.Frame()) })
	if got["refused too big"] != 1 {
		t.Errorf("segments of 1501 bytes: %v", got)
	}
}

// Zeroing gives listings a new base, for one service or for all.
func TestZero(t *testing.T) {
	r := newRig(t, small)
	a, b := tcpService(nthVIP(0), "rr"), tcpService(nthVIP(1), "rr")
	r.addService(a, 1)
	r.addService(b, 1)
	both := func(ofA, ofB uint64) {
		t.Helper()
		for s, n := range map[model.ServiceKey]uint64{a.Key: ofA, b.Key: ofB} {
			st := r.status(s)
			want := model.Stats{Conns: n, InPkts: n, InBytes: 44 * n}
			if st.Stats != want || st.Servers[0].Stats != want {
				t.Errorf("%s: service %+v and server %+v, want %+v", s, st.Stats, st.Servers[0].Stats, want)
			}
		}
	}
	open := func(i int) { t.Helper(); r.syn(nthClient(i), nthVIP(0)); r.syn(nthClient(i), nthVIP(1)) }
	open(0)
	both(1, 1)
	r.must(r.Zero(&a.Key))
	both(0, 1)
	open(1)
	both(1, 2)
	r.reopen()
	both(1, 2)
	r.must(r.Zero(nil))
	both(0, 0)
	open(2)
	both(1, 1)
	if active, _ := r.counts(a.Key, serverAddr(0)); active != 3 {
		t.Errorf("zeroing changed the connections: %d", active)
	}
}
