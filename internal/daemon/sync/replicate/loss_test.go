// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/testenv"
)

// lossy is a master and its backup on a wire that loses datagrams in both directions.
type lossy struct {
	a, b           *node
	master, backup *Replica
	load           *load
	delays         delays
	losses         []*testenv.Loss
}

// newLossy makes one whose backup joins under a load.
func newLossy(t *testing.T, share float64) *lossy {
	t.Helper()
	y := &lossy{}
	y.a, y.b = twoNodes(t, few)
	for _, n := range []*node{y.a, y.b} {
		y.losses = append(y.losses, testenv.Lose(t, n.ns, "eth0", share))
	}
	y.load = newLoad(y.a, services()[0])
	y.load.open(5000)
	y.master, _ = y.a.roleWith(Master, y.delays.master, y.b.addr)
	y.backup, _ = y.b.roleWith(Backup, y.delays.backup, y.a.addr)
	return y
}

// converge makes changes, and returns how long after the last one the tables were equal.
func (y *lossy) converge(t *testing.T, d time.Duration, rate int) (took time.Duration) {
	t.Helper()
	before := y.load.changes
	y.load.run(d, rate)
	last := time.Now()
	for {
		began := time.Since(last)
		diff := cmp.Diff(y.a.table(), y.b.table())
		if diff == "" {
			diff = cmp.Diff(y.a.servers(), y.b.servers())
		}
		if took = time.Since(last); diff == "" {
			break
		}
		if began > patience {
			t.Fatalf("%v after the last change the tables differ (-master +backup):\n%.2000s\nmaster: %+v\nbackup: %+v", took, diff, y.master.State(), y.backup.State())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if n := len(y.b.table()); n != len(y.load.live) || n < 1000 {
		t.Errorf("%d entries, want %d", n, len(y.load.live))
	}
	if changes := y.load.changes - before; changes < 1000*int(d/time.Second) {
		t.Errorf("%d changes in %v are not enough of a load", changes, d)
	}
	return took
}

// repaired fails unless datagrams were lost, and each was sent again without another transfer
// of the table.
func (y *lossy) repaired(t *testing.T) {
	t.Helper()
	lost := uint64(0)
	for i, loss := range y.losses {
		passed, dropped := loss.Packets()
		t.Logf("wire %d: %d passed, %d dropped", i+1, passed, dropped)
		if lost += dropped; passed == 0 {
			t.Errorf("wire %d was not used", i+1)
		}
	}
	if lost == 0 {
		t.Error("nothing was lost")
	}
	master, backup := y.master.State(), y.backup.State()
	t.Logf("%d changes; %d datagrams, %d requested again, %d sent again", y.load.changes, master.Counts.Datagrams, backup.Counts.Repeated, master.Counts.Repeated)
	if master.Counts.Repeated == 0 || backup.Counts.Repeated == 0 {
		t.Errorf("no loss is counted: master %+v, backup %+v", master.Counts, backup.Counts)
	}
	if master.Lost != 0 || backup.Counts.Bulks != 1 || backup.Refused != 0 {
		t.Errorf("master: %+v\nbackup: %+v", master, backup)
	}
}

// With 5 % loss in both directions the tables become equal: within 2 s, by TestMeasureLoss.
func TestReplicationOverALossyWire(t *testing.T) {
	y := newLossy(t, 0.05)
	t.Logf("equal after %v", y.converge(t, 2*time.Second, 5000))

	// After a barrier they are equal at once.
	y.load.run(300*time.Millisecond, 5000)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if all, err := y.master.Barrier(ctx); err != nil || len(all) != 1 || all[0].Behind != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	if diff := cmp.Diff(y.a.table(), y.b.table()); diff != "" {
		t.Errorf("after a barrier the tables differ (-master +backup):\n%.2000s", diff)
	}
	y.repaired(t)
}
