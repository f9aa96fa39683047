// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var (
	syncMeasures = flag.String("sync-measures", "", "file to write measurements of synchronization into")
	syncRounds   = flag.Int("sync-rounds", 7, "rounds of measuring what synchronization costs: each case once a round")
	syncExpiring = flag.Int("sync-expiring-rounds", 3, "rounds in which entries expire")
	syncRate     = flag.Int("sync-rate", 20_000, "connections that are opened a second")
	syncFor      = flag.Duration("sync-for", 8*time.Second, "how long each case is measured")
)

// syncCase is a way to tell a backup, or not to.
type syncCase struct {
	name           string
	master, backup string // keys of synchronization; empty: none
	settings       string
}

const (
	// syncBare has no director: packets are dropped as they come in by its devices. The
	// difference to it is the director's work.
	syncBare = "no director"
	syncOff  = "no synchronization"
	syncOwn  = "imbang"
)

// syncLoad says how connections end.
type syncLoad struct {
	name       string
	population uint64        // connections after which clients use their ports again
	settle     time.Duration // from the last packet to the comparison of the tables
}

// Linux's timeout of TIME_WAIT.
const timeWait = 120 * time.Second

// TestMeasureOpenings measures what it costs a master to tell a backup of short connections, and
// whether the backup has all of them. A client uses its port again after 5 s, which ends the
// connection before: so as many end as are opened after a few seconds.
func TestMeasureOpenings(t *testing.T) {
	const kernel = "%s: {interface: sync0, sync_id: 7}"
	master, backup := fmt.Sprintf(kernel, "master"), fmt.Sprintf(kernel, "backup")
	measureOpenings(t, *syncRounds, syncLoad{name: "ports used again", population: uint64(5 * *syncRate)},
		syncCase{"linux, sync_threshold 3 50", master, backup, "sync_threshold=3 50"},
		syncCase{"linux, sync_threshold 0 1", master, backup, "sync_threshold=0 1"})
}

// TestMeasureExpiring measures the same with as many entries in TIME_WAIT as Linux's timeout
// keeps. Entries end by themselves then. After the last packet all that have ended expire, and the
// backup's with them: its own timeouts are longer.
func TestMeasureExpiring(t *testing.T) {
	measureOpenings(t, *syncExpiring, syncLoad{"entries expire", uint64(timeWait.Seconds()+5) * uint64(*syncRate), timeWait + 10*time.Second})
}

// measureOpenings measures cases, and those without a director, without synchronization and with
// imbang's protocol.
func measureOpenings(t *testing.T, rounds int, load syncLoad, others ...syncCase) {
	t.Helper()
	needRoot(t)
	key := replicationKey(t)
	own := func(role, listen, to string) string {
		return fmt.Sprintf("replication: {role: %s, listen: %s, to: [%s], key_file: %s}", role, listen, to, key)
	}
	cases := append([]syncCase{{name: syncBare}, {name: syncOff}}, others...)
	cases = append(cases, syncCase{name: syncOwn, master: own("master", replicatingA, replicatingB), backup: own("backup", replicatingB, replicatingA)})
	all := make([][]syncSample, len(cases))
	for round := range rounds {
		for turn := range cases {
			i := (round + turn) % len(cases) // each is the first one as often as others
			t.Run(fmt.Sprintf("%s, round %d", cases[i].name, round+1), func(t *testing.T) {
				s := newSyncPair(t, cases[i], load).measure()
				t.Logf("%+v", s)
				all[i] = append(all[i], s)
			})
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	for i := range cases {
		if len(all[i]) < rounds {
			t.Skip("not all cases were measured: no summary")
		}
	}
	rows := summarizeSync(load.name, cases, all)
	for _, row := range rows {
		t.Logf("%s: extra %.1f %% of a core (%.1f to %.1f), packets %.1f, process %.1f; machine %.1f; backup %.1f; unequal %d, lost %d",
			row.Name, row.Extra.Median, row.Extra.Interval.Low, row.Extra.Interval.High, row.Packets.Median, row.Process.Median,
			row.MExtra.Median, row.Backup.Median, row.Unequal, row.Lost)
		if row.Undelivered > 0 {
			t.Errorf("%s: %d packets did not reach the other side", row.Name, row.Undelivered)
		}
	}
	if last := rows[len(rows)-1]; last.Unequal != 0 || last.Refused != 0 {
		t.Errorf("%d entries of master and backup differ, the backup refused %d", last.Unequal, last.Refused)
	}
	noteSync(t, func(all *syncResult, commit string) {
		for _, row := range rows {
			row.Commit = commit
			all.Cases = put(all.Cases, row, func(x syncRow) bool { return x.Name == row.Name && x.Load == row.Load })
		}
	})
}
