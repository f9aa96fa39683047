// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"time"

	"imbang/internal/daemon/operator"
	"imbang/internal/daemon/pair"
)

// mergeOrders takes over the orders of the peer that are newer than this director's. They are on
// the disk before the table follows. Those of servers that are not configured here are kept: they
// may come with the next configuration.
func (d *Daemon) mergeOrders(o *pair.Orders, now time.Time) error {
	theirs, err := operator.Decode(o.Ledger)
	if err != nil {
		return err
	}
	shift := o.Received.Sub(o.Now)
	if shift.Abs() < clocksAgree {
		shift = 0
	}
	ledger := d.ledger.Copy()
	changed := ledger.Merge(theirs, shift)
	if err := d.keepOrders(ledger); err != nil {
		return err
	}
	for _, id := range changed {
		before, state := d.core.Book[id], ledger.Entries[id].State
		if !d.core.Has(id) {
			d.core.Book = d.core.Book.Change(id, state)
			continue
		}
		by := cmp.Or(state.By(), before.By())
		if state.None() {
			by = ""
		}
		d.carryOut(d.core.Order(id, state, by, state.Words()+" (ordered on the peer)", now))
	}
	if len(changed) > 0 {
		d.setJobs()
	}
	d.publish(now)
	return nil
}
