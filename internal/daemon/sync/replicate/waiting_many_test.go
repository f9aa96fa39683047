// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
)

// A backup whose services come later than its role has all connections then, also if they are
// more than it keeps; a barrier does not pass before; and the entries that wait do not hold up
// others.
func TestManyWaitingEntries(t *testing.T) {
	a, b := twoNodes(t, 1<<18)
	s := services()[0]
	server := netip.AddrPortFrom(serverAddr(model.IPv4, 0), 8080)
	const many = mostWaiting + 4096
	var list []model.Connection
	for i := range many {
		c := connection(s, 2*i)     // all of the first server
		c.Expires = 6 * time.Minute // no packet for nine
		list = append(list, c)
	}
	a.insert(list...)
	b.must(b.d.DeleteServer(s.Key, server))
	master, _ := a.role(Master, b.addr)
	backup, _ := b.role(Backup, a.addr)
	for deadline := time.Now().Add(patience); !backup.State().Master.Synced; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the backup is %+v", backup.State())
		}
	}
	var waits []time.Duration
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		began := time.Now()
		backup.State()
		waits = append(waits, time.Since(began))
	}
	// What a try of all of them takes on this machine, with what else it does: they are tried in chunks.
	began := time.Now()
	for chunk := range slices.Chunk(list, director.InsertBatch) {
		_, err := b.d.Insert(chunk)
		b.must(err)
	}
	all := time.Since(began)
	// A role that tries all of them each second stands still five times; a machine that stops it, once.
	slices.Sort(waits)
	longest := waits[len(waits)-3:]
	t.Logf("with %d entries that wait the role stood still for %v; all were tried in %v", backup.State().Waiting, longest, all)
	if longest[0] > all/4 {
		t.Error("it stood still for too long")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if all, err := master.Barrier(ctx); err == nil {
		t.Errorf("a barrier has passed: %+v; of the backup's entries %d wait, %d are refused", all, backup.State().Waiting, backup.State().Refused)
	}
	b.must(b.d.AddServer(s.Key, model.Server{Addr: server.Addr(), Port: server.Port(), Weight: 1}))
	n := 0
	for deadline := time.Now().Add(patience); n < many && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		n = len(b.table())
	}
	if n != many {
		t.Errorf("%d entries after the server was added, want %d: %+v", n, many, backup.State())
	}
}
