// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A director that was the master removes what the new one does not have, but not what packets
// come for here, and counts what ended.
func TestFormerMaster(t *testing.T) {
	a, b := twoNodes(t, 1<<12)
	s := services()[0]
	common, idle, used := connection(s, 0), connection(s, 1), connection(s, 2)
	common.Expires, idle.Expires = 10*time.Minute, 10*time.Minute // of 15
	used.Expires = 16 * time.Minute                               // as after a packet in a minute
	a.insert(common)
	b.insert(common, idle, used)
	backup, _ := b.role(Backup, a.addr)
	a.role(Master, b.addr)
	has := func(client string) bool {
		return slices.ContainsFunc(b.table(), func(line string) bool { return strings.Contains(line, client) })
	}
	for deadline := time.Now().Add(5 * time.Second); has(idle.Client.String()) || backup.State().Swept == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the table has what the master does not: %v", b.table())
		}
	}
	if !has(common.Client.String()) || !has(used.Client.String()) {
		t.Errorf("the table has %v", b.table())
	}
	if s := backup.State(); s.Swept != 1 || s.Counts.Swept != 2 {
		t.Errorf("%d entries ended of %d that the master does not have", s.Swept, s.Counts.Swept)
	}
}
