// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"imbang/internal/lab/record"
	"imbang/internal/lab/study"
)

func find(t *testing.T, name string) *study.Study {
	t.Helper()
	s, err := study.Find(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBlocksAreShuffled(t *testing.T) {
	list := NewPlan(find(t, "thesis"), false).Measured()
	if len(list) != 44 {
		t.Fatalf("%d cells, want 44: ten schedulers and the yardstick at three rates, and with httperf at one", len(list))
	}
	if diff := cmp.Diff(block(list, 1, 7), block(list, 1, 7)); diff != "" {
		t.Errorf("equal seeds give different orders: %s", diff)
	}
	if cmp.Equal(block(list, 1, 7), block(list, 1, 8)) || cmp.Equal(block(list, 1, 7), block(list, 2, 7)) {
		t.Error("another seed or block has the same order")
	}
	seen := map[record.Cell]bool{}
	for _, c := range block(list, 0, 7) {
		seen[c] = true
	}
	if len(seen) != len(list) {
		t.Errorf("a block holds %d different cells, want %d", len(seen), len(list))
	}
}

func TestQuickPlan(t *testing.T) {
	s := find(t, "thesis")
	full, quick := NewPlan(s, false), NewPlan(s, true)
	if full.Duration != s.Load.Duration || full.Repeats != 8 || full.Timeout != 5*time.Second {
		t.Errorf("full plan %+v", full)
	}
	if quick.Connections != 0 || quick.Duration != s.Quick.Duration || quick.Repeats != s.Quick.Repeats {
		t.Errorf("quick plan %+v", quick)
	}
	for _, c := range full.Conditions {
		if c.Connections > 0 {
			if c.Rate = 2000; Expected(full, record.Cell{Condition: c}) != 500*time.Millisecond+full.Warmup {
				t.Errorf("expected time of %s: %v", c, Expected(full, record.Cell{Condition: c}))
			}
		}
	}
	if quick.Measured()[len(quick.Measured())-1].Tool != study.BuiltIn {
		t.Error("a quick run has cells of other tools")
	}
}

func TestClosedLoopPlan(t *testing.T) {
	s := find(t, "single-vs-cluster")
	full, quick := NewPlan(s, false).Measured(), NewPlan(s, true).Measured()
	if len(full) != 24 || len(quick) != 4 {
		t.Errorf("%d cells, %d of a quick run; want 24 (2 competitors, 2 families, 3 numbers of requests, ab twice, ping) and 4", len(full), len(quick))
	}
	if c := full[0].Condition; c.Level() != 1000 || c.LevelUnit() != "requests" || !c.Closed() {
		t.Errorf("%+v: level %g %s", c, c.Level(), c.LevelUnit())
	}
	if c := quick[0].Condition; c.Level() != 40 || c.LevelUnit() != "users" {
		t.Errorf("%+v: level %g %s", c, c.Level(), c.LevelUnit())
	}
}

func TestTooSlowLooksOneBlockAhead(t *testing.T) {
	for _, c := range []struct {
		pilot, elapsed time.Duration
		blocks         int
		want           bool
	}{
		{0, 70 * time.Second, 1, false},
		{0, 76 * time.Second, 1, true},
		{0, 95 * time.Second, 2, false},
		{0, 101 * time.Second, 2, true},
		{20 * time.Second, 66 * time.Second, 1, true},
		{20 * time.Second, 64 * time.Second, 1, false},
	} {
		if got := tooSlow(c.pilot, c.elapsed, c.blocks); got != c.want {
			t.Errorf("tooSlow(%v, %v, %d) = %v, want %v", c.pilot, c.elapsed, c.blocks, got, c.want)
		}
	}
}

// Tools other than the built-in one ask one address, so plain forwarding to
// several servers has no cell with them.
func TestPlainForwardingToSeveralServersHasNoToolCells(t *testing.T) {
	p := NewPlan(find(t, "layer7-vs-layer4"), false)
	own, others := 0, 0
	for _, c := range p.Measured() {
		switch {
		case c.Engine == "direct" && c.Tool == study.BuiltIn:
			own++
		case c.Engine == "direct":
			others++
		}
	}
	if own != 4 || others != 0 || p.Cells != len(p.Measured()) {
		t.Errorf("%d cells by the built-in generator, %d by others, %d in all of %d", own, others, p.Cells, len(p.Measured()))
	}
}
