// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"io"
	"testing"

	"imbang/internal/model"
)

// A reading of a table does not look for templates among all connections in one call: the lock that
// its caller has keeps events waiting.
func TestCursorReadsOnePageAtMost(t *testing.T) {
	const page, entries = 4096, 20_000
	a, _ := twoNodes(t, few)
	s := services()[0]
	list := make([]model.Connection, entries)
	for i := range list {
		list[i] = connection(s, i)
	}
	a.insert(list...)
	for _, one := range []struct {
		name  string
		c     *cursor
		empty int // calls that find none
	}{
		{"in order", newCursor(a.d, inOrder, nil), entries / page}, // no template is on the first pages
		{"in any order", newCursor(a.d, anyOrder, nil), 0},
	} {
		into := make([]model.Connection, page/2)
		seen := map[model.EntryKey]bool{}
		for empty := 0; ; {
			n, err := one.c.Next(into)
			for _, c := range into[:n] {
				seen[c.Key()] = true
			}
			if err == io.EOF {
				if empty < one.empty {
					t.Errorf("%s: %d calls found none, want %d", one.name, empty, one.empty)
				}
				break
			}
			a.must(err)
			if n == 0 {
				empty++
			}
		}
		if len(seen) != entries {
			t.Errorf("%s: %d entries of %d", one.name, len(seen), entries)
		}
	}
}
