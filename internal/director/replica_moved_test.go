// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/bpfobj"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The wheel notices that packets have moved the end of a replica. What is left of that end
// would be the end again after some time.
func TestReplicaThatWasMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := service(model.UDP, vip, "rr")
	r.addService(s, 1)
	c := toldOf(client1, vip, server0, "UDP")
	c.Protocol, c.Service.Protocol = model.UDP, model.UDP
	c.Expires = 8 * time.Second // the wheel reaches it soon, but not before the packet below
	errs, err := r.Replicate([]model.Connection{c})
	r.must(err)
	r.must(errs[0])
	conn := func() (c bpfobj.LbConn4) {
		r.must(r.maps.Conns4.Lookup(flowOf(testenv.UDP(client1, vip, "")), &c))
		return c
	}
	if conn().ToldEnd == 0 {
		t.Fatalf("the replica is %+v", conn())
	}
	r.fromClient(testenv.UDP(client1, vip, "x"))
	if conn().ToldEnd == 0 {
		t.Errorf("a packet wrote what backups know: %+v", conn())
	}
	r.atLast(time.Minute, "the wheel notices the packet", func() bool { return conn().ToldEnd == 0 })
}
