// SPDX-License-Identifier: Apache-2.0

package own

import (
	"time"

	"imbang/internal/model"
)

// sweep removes entries that the receiver has and the sender does not: they were deleted
// while the receiver was away. It notes the hash of each entry that is received from the
// beginning of a bulk transfer on, and when that is complete it reads its own table.
type sweep struct {
	seed   uint64
	seen   map[uint64]struct{} // nil: there is nothing to compare
	ready  bool                // the transfer is complete
	cursor Cursor
	next   time.Duration
	batch  []model.Connection
}

func (w *sweep) cancel() {
	if w.cursor != nil {
		w.cursor.Close()
	}
	w.seen, w.cursor, w.ready = nil, nil, false
}

func (w *sweep) begin(wanted bool) {
	w.cancel()
	if wanted {
		w.seen = map[uint64]struct{}{}
	}
}

func (w *sweep) add(c *model.Connection) {
	if w.seen != nil {
		w.seen[flowHash(w.seed, c)] = struct{}{}
	}
}

// sweepSlack is how exactly the table has the time of an entry's last packet.
const sweepSlack = 500 * time.Millisecond

// untouched reports whether no packet of an entry has come since a time. Entries of a
// former master are no copies: they end if packets for them went to the sender since.
func untouched(c *model.Connection, since time.Duration) bool {
	return c.Timeout > 0 && c.Timeout-c.Expires > since+sweepSlack
}

// sweepOn goes on with it.
func (r *Receiver) sweepOn(now time.Duration, out *Output) {
	w := &r.sweep
	if w.seen == nil || !w.ready || now < w.next {
		return
	}
	if w.cursor == nil {
		w.cursor = r.config.Table()
	}
	if w.batch == nil {
		w.batch = make([]model.Connection, sweepChunk)
	}
	n, err := w.cursor.Next(w.batch)
	for i := range n {
		if _, ok := w.seen[flowHash(w.seed, &w.batch[i])]; !ok {
			c := w.batch[i]
			if !untouched(&c, now-r.began) {
				c.Expires = 0
			}
			out.Apply = append(out.Apply, Change{Delete: true, Swept: true, Conn: c})
			r.counts.Swept++
		}
	}
	w.next = now + sweepEvery
	if err != nil { // after an error the rest expires
		w.cancel()
		w.batch = nil
	}
}
