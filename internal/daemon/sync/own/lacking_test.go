// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// A sender knows how many entries a receiver could not enter, also while datagrams are lost.
func TestLackingEntries(t *testing.T) {
	w := newWorld(t, 3, 0.1)
	master, backup := w.node().sender(), w.node().receiver()
	w.run(time.Second)
	for _, n := range []uint64{7, 1 << 33, 0} {
		backup.do(func(out *Output) { backup.receive.SetLacking(backup.clock(), n, out) })
		master.load(w.now+2*time.Second, 5)
		w.run(3500 * time.Millisecond)
		list := master.send.Receivers()
		if want := min(n, 1<<32-1); len(list) != 1 || list[0].Lacking != want {
			t.Errorf("%+v, want %d that lack", list, want)
		}
		backup.same(master)
	}
}

// What a receiver was given to apply is not acknowledged before it can say what of it it
// could not enter.
func TestAcknowledgedAfterIsApplied(t *testing.T) {
	w := newWorld(t, 3, 0)
	master, backup := w.node().sender(), w.node().receiver()
	w.run(time.Second)
	var datagrams [][]byte
	w.lose = func(d Datagram) bool {
		if d.To == group && kind(d.Bytes[4]) == kindData {
			datagrams = append(datagrams, append([]byte(nil), d.Bytes...))
			return true
		}
		return false
	}
	for i := range 60 * ackEach {
		master.put(conn(i))
	}
	var out Output
	for _, b := range datagrams {
		backup.receive.Receive(backup.clock(), master.addr, b, &out)
	}
	if len(datagrams) <= ackEach || len(out.Apply) == 0 || len(out.Datagrams) != 0 {
		t.Errorf("%d datagrams with %d changes cause %d others", len(datagrams), len(out.Apply), len(out.Datagrams))
	}
	if out.Next > backup.clock() {
		t.Errorf("the acknowledgement is due in %v", out.Next-backup.clock())
	}
}
