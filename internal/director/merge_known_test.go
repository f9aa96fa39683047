// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What was here and has ended is not entered again; what is here is changed. That a table has had all
// stays with it.
func TestMergeKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 1)
	c := replica(s.Key, client1, "172.16.0.10:8080")
	merge := func(known bool) (m Merged) {
		errs, m, err := r.Merge([]model.Connection{c}, known)
		r.must(err)
		r.must(errs...)
		return m
	}
	if merge(true); r.tableEntries(0) != 0 {
		t.Error("an entry that ended is there again")
	}
	merge(false)
	c.State = "FIN_WAIT"
	merge(true)
	if got := r.connection(client1); got.State != "FIN_WAIT" {
		t.Errorf("its state is %s", got.State)
	}
	c.State, c.Server, c.RealServer = "ESTABLISHED", replica(s.Key, client1, "172.16.0.11:8080").Server, replica(s.Key, client1, "172.16.0.11:8080").Server
	merge(true) // nothing was here but a replica
	if got := r.connection(client1); got.Server != c.Server {
		t.Errorf("its server is %s", got.Server)
	}
	for _, all := range []bool{true, false} {
		r.must(r.SetReplicated(all))
		if got, err := r.Replicated(); err != nil || got != all {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// The end of an entry is more than a timeout from now, as after timeouts were shortened: when its last
// packet came is not known, and it gives way to one of a packet that is known.
func TestMergeUnknownLastPacket(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1, 0)
	c := replica(s.Key, client1, "172.16.0.10:8080")
	r.insert([]model.Connection{c})
	if got := r.fromClient(testenv.TCP(client1, vip, "A")); got.verdict != redirect {
		t.Fatalf("a packet: %s", got.verdict)
	}
	c.Server = replica(s.Key, client1, "172.16.0.11:8080").Server
	c.RealServer, c.Idle = c.Server, time.Minute
	merge := func() Merged {
		errs, m, err := r.Merge([]model.Connection{c}, false)
		r.must(err)
		r.must(errs...)
		return m
	}
	if m := merge(); m.Kept != 1 {
		t.Errorf("with a later packet: %+v", m)
	}
	r.must(r.changeConfig(func(set *bpfobj.LbSettings) { set.Timeout[bpfobj.LbConnStateTCP_ESTABLISHED] = uint64(time.Minute) }))
	merge()
	if got := r.connection(client1); got.Server != c.Server {
		t.Errorf("its server is %s", got.Server)
	}
}
