// SPDX-License-Identifier: Apache-2.0

//go:build measure

package replicate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/model"
)

// cpu is the processor time of this process, which performs both roles.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// How long a director that joins waits for a million connections. Master and backup share
// this machine.
func TestMeasureJoin(t *testing.T) {
	const million = 1_000_000
	a, b := twoNodes(t, 1<<20)
	s := services()[0]
	list := make([]model.Connection, million)
	for i := range list {
		list[i] = connection(s, i)
	}
	began := time.Now()
	a.insert(list...)
	t.Logf("inserted %d in %v", million, time.Since(began))
	list = nil
	var took []time.Duration
	for round := range 3 {
		_, endMaster := a.role(Master, b.addr)
		before := cpu(t)
		began = time.Now()
		backup, endBackup := b.role(Backup, a.addr)
		for !backup.State().Master.Synced {
			if time.Since(began) > time.Minute {
				t.Fatalf("after a minute the backup is %+v", backup.State())
			}
			time.Sleep(5 * time.Millisecond)
		}
		one := time.Since(began)
		took = append(took, one)
		state := backup.State()
		t.Logf("round %d: %v; processor time of both roles %v; %d entries applied, %d datagrams requested again, refused %v",
			round+1, one, cpu(t)-before, state.Counts.Entries, state.Counts.Repeated, state.Counts.Refused)
		if n := len(b.table()); n != million {
			t.Errorf("%d entries", n)
		}
		endBackup()
		endMaster()
		if round == 0 {
			fmt.Println("the later rounds update what is there")
		}
	}
	slices.Sort(took)
	if took[len(took)-1] > 10*time.Second {
		t.Errorf("it took up to %v; the target is 10 s", took[len(took)-1])
	}
}
