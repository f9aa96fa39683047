// SPDX-License-Identifier: Apache-2.0

package director

import (
	"testing"
	"time"
)

// A teller whose process was stopped for longer than its lease knows that it missed events.
func TestTellerThatWasStopped(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	teller := r.tell(TellRule{Changes: true})
	close(teller.stop) // as if the process was stopped
	teller.stopped.Wait()
	time.Sleep(listenerLease + listenerRenewal)
	r.establish("10.10.0.2:1", vip)
	teller.stop = make(chan struct{})
	teller.stopped.Add(1)
	go teller.keep()
	r.atLast(time.Minute, "the lease is renewed after it expired", func() bool {
		teller.mu.Lock()
		defer teller.mu.Unlock()
		return teller.lapses > 0
	})
	r.establish("10.10.0.2:2", vip)
	clients := map[string]bool{}
	for _, one := range r.received(teller) {
		clients[one.Conn.Client.String()] = true
	}
	lost, err := teller.Lost()
	r.must(err)
	if clients["10.10.0.2:1"] || !clients["10.10.0.2:2"] {
		t.Fatalf("told of %v", clients)
	}
	if lost == 0 {
		t.Error("events were missed, and none is counted as lost")
	}
	if lost, err = teller.Lost(); err != nil || lost != 0 {
		t.Errorf("asked again: %d, %v", lost, err)
	}
}
