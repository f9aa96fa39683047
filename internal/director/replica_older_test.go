// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// What is told of a connection without its last packets does not change what packets have
// made of it here.
func TestReplicateWhatIsOlder(t *testing.T) {
	r := newRig(t, small)
	s := tcpService(vip, "rr")
	r.addService(s, 1)
	c := replica(s.Key, client1, "172.16.0.10:8080")
	c.Expires = 20 * time.Minute // copies live longer than their entries
	r.replicate(c)
	if got := r.fromClient(testenv.TCP(client1, vip, "A")); got.verdict != redirect {
		t.Fatalf("a packet: %s", got.verdict)
	}
	c.Expires, c.Idle = 100*time.Second, 800*time.Second // no packet has come there for long
	r.replicate(c)
	if got := r.connection(client1); got.Expires < 10*time.Minute {
		t.Errorf("a connection in use expires in %v", got.Expires)
	}
	errs, _, err := r.Withdraw([]model.Connection{c}) // it expired there
	r.must(err)
	r.must(errs...)
	if n := r.tableEntries(0); n != 1 {
		t.Error("a connection in use was ended")
	}
}
