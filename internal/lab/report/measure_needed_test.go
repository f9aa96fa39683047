// SPDX-License-Identifier: Apache-2.0

//go:build measure

package report

import (
	"testing"

	"imbang/internal/lab/stats"
)

// The numbers that are compiled in are those that the simulation of a study finds.
func TestNeededIsThatOfTheStatistics(t *testing.T) {
	for k, want := range needed {
		if got := stats.Needed(k, claimAlpha); got != want {
			t.Errorf("%d competitors: %d, want %d", k, got, want)
		}
	}
}
