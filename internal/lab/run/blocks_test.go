// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"

	"imbang/internal/lab/record"
)

// An added block is a part of the stored plan before it is measured.
func TestAddedBlocksArePlanned(t *testing.T) {
	dir := t.TempDir()
	out, err := record.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	l := &lab{out: out, env: record.Environment{Plan: record.Plan{Repeats: 5}}}
	if err := out.Environment(l.env); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ blocks, want int }{{4, 5}, {6, 6}, {7, 7}} {
		if err := l.extend(c.blocks); err != nil {
			t.Fatal(err)
		}
		if r, err := record.Read(dir); err != nil || r.Environment.Plan.Repeats != c.want {
			t.Errorf("block %d: %+v, %v", c.blocks, r, err)
		}
	}
}
