// SPDX-License-Identifier: Apache-2.0

package own

import (
	"time"

	"imbang/internal/model"
)

const (
	// wholeEvery is how often a director of a pair asks how far the other one's stream is.
	wholeEvery = time.Second
	// wholeSlack is how exactly the time of a packet at the other director is known.
	wholeSlack = time.Second
)

// whole is when the own table last had all that the other director had. What a later transfer has
// of an entry without a packet since then was here: if it is not any more it has ended here.
type whole struct {
	at    time.Duration
	known bool // at is
	ask   time.Duration
}

// applied notes what the caller has applied since the last call: all that was put out.
func (r *Receiver) applied(now time.Duration) {
	if !r.config.pair || !r.following || !r.synced || r.want {
		return
	}
	if r.allCame {
		r.all, r.allCame = false, false
	}
	r.probe.reach(r.done)
	if r.probe.known && r.lacking == 0 && !r.all {
		r.whole.at, r.whole.known = r.probe.fresh, true
	}
}

// askWhole asks from time to time.
func (r *Receiver) askWhole(now time.Duration, out *Output) {
	if !r.config.pair || now < r.whole.ask {
		return
	}
	r.whole.ask = now + wholeEvery
	r.HasAll(now, now, out)
}

// had reports whether an entry of a transfer was here: its last packet, which is known, came
// before the table was whole.
func (w *whole) had(now time.Duration, c *model.Connection) bool {
	return w.known && c.Idle < unknownIdle && now-c.Idle < w.at-wholeSlack
}

// HadAll reports whether the own table has had all that the other director of a pair has, with its
// replicas, and lacks nothing of it (Config.Replicated).
func (r *Receiver) HadAll() bool { return !r.all && r.lacking == 0 }
