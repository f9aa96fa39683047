// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"imbang/internal/model"
)

// A backup keeps what packets came for here, though the master does not have it: clients may
// use it, if the virtual address is here. It is not counted as removed.
func TestFormerMaster(t *testing.T) {
	a, b := twoNodes(t, few)
	s := services()[0]
	common, own, copied := connection(s, 0), connection(s, 1), connection(s, 2)
	a.insert(common)
	b.insert(common, own)
	errs, err := b.d.Replicate([]model.Connection{copied})
	b.must(err)
	for _, err := range errs {
		b.must(err)
	}
	backup, _ := b.role(Backup, a.addr)
	a.role(Master, b.addr)
	has := func(client string) bool {
		return slices.ContainsFunc(b.table(), func(line string) bool { return strings.Contains(line, client) })
	}
	for deadline := time.Now().Add(patience); has(copied.Client.String()) || backup.State().Swept == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the table has a copy of what the master does not have: %v", b.table())
		}
	}
	if !has(common.Client.String()) || !has(own.Client.String()) {
		t.Errorf("the table has %v", b.table())
	}
	if s := backup.State(); s.Swept != 1 || s.Counts.Swept != 2 {
		t.Errorf("%d entries ended of %d that the master does not have", s.Swept, s.Counts.Swept)
	}
}
