// SPDX-License-Identifier: Apache-2.0

package own

import (
	"testing"
	"time"
)

// After an authentic record that it cannot apply, a receiver does not have the whole table
// before another bulk transfer, also if that has such a record, and it removes nothing.
func TestRecordThatCannotBeApplied(t *testing.T) {
	for name, spoil := range map[string]func(master, backup *node){
		"malformed": func(master, _ *node) {
			master.do(func(out *Output) {
				s := master.send
				s.room(master.clock(), 1, false, out)
				s.open = append(s.open, opMask)
				s.flush(master.clock(), out)
			})
		},
		"undefined": func(master, backup *node) {
			clear(backup.receive.definitions)
			master.put(conn(3000))
		},
	} {
		w := newWorld(t, 1, 0)
		master, backup := w.node().sender(), w.node().receiver()
		w.run(time.Second)
		for i := range 2000 {
			master.put(conn(i))
		}
		w.run(time.Second)
		backup.same(master)
		for round := range 2 {
			spoil(master, backup)
			whole := true
			for range 300 {
				w.run(100 * time.Microsecond)
				whole = whole && backup.receive.State().Synced
			}
			if whole {
				t.Errorf("%s: the receiver says that it has the whole table: %+v", name, backup.receive.Counts())
			}
			w.run(time.Second)
			if r := backup.receive; r.State().Synced != (round == 0) || r.Counts().Bulks != 2 {
				t.Errorf("%s: %+v after %d times, %d transfers", name, r.State(), round+1, r.Counts().Bulks)
			}
			if round == 1 {
				w.run(repairEvery)
			}
			backup.same(master)
			if r := backup.receive; !r.State().Synced || r.Counts().Bulks != uint64(2+round) || r.Counts().Swept != 0 {
				t.Errorf("%s: %+v, %+v", name, r.State(), r.Counts())
			}
		}
	}
}
