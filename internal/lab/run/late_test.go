// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"testing"
	"time"

	"imbang/internal/lab/record"
)

// A run in which the generator is late is kept and marked. No cell is measured
// more often than the plan says: that would select among results.
func TestLateRunsAreNotMeasuredAgain(t *testing.T) {
	c, w := config(t), &watch{}
	const tooFast = 300_000 // requests/s: more than any client starts
	c.Plan.Conditions, c.Plan.Duration = c.Plan.Conditions[:2], 50*time.Millisecond
	c.Plan.Conditions[1].Rate = tooFast
	c.Plan.Cells = 2
	if _, err := Run(context.Background(), c, w); err != nil {
		t.Fatal(err)
	}
	stored, err := record.Read(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Samples) != 4 || len(stored.Repeated) != 0 || len(w.ended) != 4 {
		t.Fatalf("%d samples, %d repeated, want 4 and 0", len(stored.Samples), len(stored.Repeated))
	}
	for _, s := range stored.Samples {
		if g := s.Load.Generator; s.Rate == tooFast && (!g.Behind || g.Reason == "") {
			t.Errorf("%s, block %d: not marked as late: issued %g of %g/s, lateness %.1f ms", s.Cell, s.Block, s.Load.IssuedRate, s.Load.OfferedRate, g.Lateness.P99MS)
		}
	}
}
