// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"net/netip"
	"testing"
	"time"

	"imbang/internal/director"
	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Another command that holds the director's lock for long does not end a backup.
func TestLockedTable(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	a.role(Master, b.addr)
	backup, ended := b.run(Config{Role: Backup, Listen: netip.AddrPortFrom(b.addr, 0), To: []netip.AddrPort{netip.AddrPortFrom(a.addr, 0)}, KeyFile: b.key, Group: 7})
	for !backup.State().Master.Synced {
		time.Sleep(10 * time.Millisecond)
	}
	other := b.open()
	b.must(other.Batch(func() error {
		director.SetLockTimeout(300 * time.Millisecond) // from now on: nothing else fails if the holder of a lock stalls
		defer director.SetLockTimeout(director.DefaultLockTimeout)
		err := other.AddService(model.Service{Key: model.AddrKey(model.TCP, netip.MustParseAddrPort("10.20.0.9:80")), Scheduler: "rr", Netmask: model.FullMask(model.IPv4)})
		a.insert(connection(s, 0))
		told, locked, stalls := 0, uint64(0), testenv.WatchStalls(t)
		open := func(d time.Duration) bool { return d < time.Second+5*stalls.Longest() || locked == 0 && d < patience }
		for start := time.Now(); open(time.Since(start)); time.Sleep(5 * time.Millisecond) {
			began := time.Now()
			locked = backup.State().Locked
			told++
			if took := time.Since(began); took > 100*time.Millisecond+3*stalls.Longest() {
				t.Errorf("the state was not told for %v, beside stalls of %v", took, stalls.Longest())
			}
		}
		// One that waited for the lock would be told four times, each 300 ms.
		if told < 20 {
			t.Errorf("the state was told %d times in a second", told)
		}
		return err
	}))
	select {
	case err := <-ended:
		t.Errorf("the backup ended: %v", err)
	case <-time.After(2 * time.Second):
		wantEqual(a, b, "after the lock")
		if s := backup.State(); s.Locked == 0 || !s.Master.Synced {
			t.Errorf("after the lock the backup is %+v", s)
		}
	}
}
