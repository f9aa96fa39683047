// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/testenv"
)

// quiet is how long after the last change tables may differ, though datagrams are lost.
const quiet = 2 * time.Second

// converge runs a load on a wire that loses datagrams in both directions, with a backup that
// joins meanwhile, and returns how long after the last change the tables were equal.
func converge(t *testing.T, share float64, d time.Duration, rate int) (took time.Duration, master, backup State) {
	t.Helper()
	a, b := twoNodes(t, 1<<15)
	losses := []*testenv.Loss{testenv.Lose(t, a.ns, "eth0", share), testenv.Lose(t, b.ns, "eth0", share)}
	l := newLoad(a, services()[0])
	l.open(5000)
	before := l.changes
	sends, endMaster := a.role(Master, b.addr)
	applies, endBackup := b.role(Backup, a.addr)
	l.run(d, rate)
	last := time.Now()
	var diff string
	for {
		began := time.Since(last)
		if diff = cmp.Diff(a.table(), b.table()); diff == "" {
			diff = cmp.Diff(a.servers(), b.servers())
		}
		if took = time.Since(last); diff == "" || began > quiet {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	master, backup = sends.State(), applies.State()
	endBackup()
	endMaster()
	if diff != "" {
		t.Fatalf("%v after the last change the tables differ (-master +backup):\n%.2000s\nmaster: %+v\nbackup: %+v", took, diff, master, backup)
	}
	if n := len(a.table()); n != len(l.live) || n < 1000 {
		t.Errorf("%d entries, want %d", n, len(l.live))
	}
	changes := l.changes - before
	t.Logf("%d changes in %v; equal after %v; %d datagrams, %d sent again, %d requested again; %d transfers of the table", changes, d, took,
		master.Counts.Datagrams, master.Counts.Repeated, backup.Counts.Repeated, backup.Counts.Bulks)
	if changes < 1000*int(d/time.Second) {
		t.Errorf("%d changes in %v are not enough of a load", changes, d)
	}
	for i, loss := range losses {
		passed, dropped := loss.Packets()
		t.Logf("wire %d: %d passed, %d dropped", i+1, passed, dropped)
		if dropped == 0 {
			t.Errorf("wire %d lost nothing", i+1)
		}
	}
	if master.Counts.Repeated == 0 || backup.Counts.Repeated == 0 {
		t.Errorf("no loss is counted: master %+v, backup %+v", master.Counts, backup.Counts)
	}
	// It was repaired, and not by sending the whole table again.
	if master.Lost != 0 || backup.Counts.Bulks != 1 || backup.Refused != 0 {
		t.Errorf("master: %+v\nbackup: %+v", master, backup)
	}
	return took, master, backup
}

// With 5 % loss in both directions the tables are equal after 2 s of quiet.
func TestReplicationOverALossyWire(t *testing.T) {
	converge(t, 0.05, 2*time.Second, 5000)
}
