// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// The sweep notices that packets have moved the end of a replica. What is left of that end
// would be the end again after some time.
func TestReplicaThatWasMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, small)
	s := service(model.UDP, vip, "rr")
	r.addService(s, 1)
	c := toldOf(client1, vip, server0, "UDP")
	c.Protocol, c.Service.Protocol = model.UDP, model.UDP
	c.Expires = 8 * time.Second
	errs, err := r.Replicate([]model.Connection{c})
	r.must(err)
	r.must(errs[0])
	conn := func() entry { return r.entryOf(fromFlow4(flowOf(testenv.UDP(client1, vip, "")))) }
	if conn().ToldEnd == 0 {
		t.Fatalf("the replica is %+v", conn())
	}
	before := r.sweeps()
	r.fromClient(testenv.UDP(client1, vip, "x"))
	if c := conn(); c.ToldEnd == 0 && r.sweeps() == before {
		t.Errorf("a packet wrote what backups know: %+v", c)
	}
	r.atLast(time.Minute, "the sweep notices the packet", func() bool { return conn().ToldEnd == 0 })
}
