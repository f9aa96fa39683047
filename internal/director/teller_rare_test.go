// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"testing"
	"time"

	"imbang/internal/model"
	"imbang/internal/testenv"
)

// Timeouts of hours, and refresh periods that differ much from the timeout: backups are told
// neither with every packet nor never.
func TestTellRarely(t *testing.T) {
	t.Parallel()
	const hours, lasts, pause = 20_000, 3 * time.Second, 20 * time.Millisecond
	for _, c := range []struct {
		name             string
		timeout          time.Duration // of UDP
		template         uint32        // [s]
		refresh, retries int
		least, most      int
	}{
		{"a template of hours", time.Minute, hours, 0, 0, 1, 2},
		{"a connection of hours", hours * time.Second, 0, 1, 0, 1, 3},
		{"a refresh period of hours", time.Minute, 0, 3600, 3, 1, 1},
		{"a refresh period of hours for a template", time.Minute, 60, 3600, 3, 1, 1},
		{"a refresh period of a second", time.Minute, 0, 1, 0, 2, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, small)
			s := service(model.UDP, vip, "rr")
			if c.template != 0 {
				s = persistent(s)
				s.Timeout = time.Duration(c.template) * time.Second
			}
			r.addService(s, 1)
			r.must(r.SetTimeouts(model.Timeouts{UDP: c.timeout}))
			r.turn(fmt.Sprintf("sync_refresh_period=%d", c.refresh))
			r.turn(fmt.Sprintf("sync_retries=%d", c.retries))
			r.synchronized(0, 1)
			// Of a persistent service the template alone is told.
			teller := r.tell(TellRule{Changes: c.template != 0})
			n, stalls := 0, testenv.WatchStalls(t)
			for began := time.Now(); time.Since(began) < lasts || n < c.least && time.Since(began) < lasts+3*stalls.Longest(); time.Sleep(pause) {
				r.fromClient(testenv.UDP(client1, vip, "x"))
				for _, one := range r.received(teller) {
					if one.Kind == ConnectionTell {
						n++
					}
				}
			}
			if n < c.least || n > c.most {
				t.Errorf("told %d times in %v, want %d to %d", n, lasts, c.least, c.most)
			}
		})
	}
}
