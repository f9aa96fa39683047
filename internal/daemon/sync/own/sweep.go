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
			// What packets came for here, whenever that was, stays until its timeout: the
			// address may be here, while the one that is master has lost its table.
			w.batch[i].Idle = longestExpiry
			out.Apply = append(out.Apply, Change{Delete: true, Swept: true, Conn: w.batch[i]})
			r.counts.Swept++
		}
	}
	w.next = now + sweepEvery
	if err != nil { // after an error the rest expires
		w.cancel()
		w.batch = nil
	}
}
