// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"testing"
	"time"
)

func TestClock(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	for name, c := range map[string]struct {
		sent, heard, told int
		want              Clock
	}{
		"the same":      {0, 100, 50, Clock{0, 50 * time.Millisecond}},
		"ahead":         {0, 100, 2050, Clock{2 * time.Second, 50 * time.Millisecond}},
		"behind":        {0, 2, -3999, Clock{-4 * time.Second, time.Millisecond}},
		"set back here": {100, 0, 100, Clock{0, 0}},
	} {
		if got := clockOf(at(c.sent), at(c.heard), at(c.told)); got == nil || *got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := clockOf(at(0), at(1), time.Time{}); got != nil {
		t.Errorf("of a peer that does not say it: %+v", got)
	}
}
