// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Synced reports whether the whole table of a pair's other director is here as it was at a time
// or later, but for what happened there in the 30 ms before. It asks the other director, so that
// the answer is false at first: the caller asks again. Entries that cannot be entered, since a
// service or server is missing here, do not matter (State.Lacking). False in another role.
func (r *Replica) Synced(since time.Time) bool {
	r.use()
	defer r.mu.Unlock()
	return r.syncedLocked(since)
}

func (r *Replica) syncedLocked(since time.Time) bool {
	if r.pair == nil || r.ended || r.locked {
		return false
	}
	all := r.receiver.HasAll(r.now(), since.Sub(r.start), &r.out)
	return r.do() == nil && all && !r.locked
}

// Following reports whether the other director is heard, so that its table can be received.
// False in another role than that of a pair.
func (r *Replica) Following() bool {
	r.use()
	defer r.mu.Unlock()
	return r.pair != nil && !r.ended && r.receiver.State().Following
}

// mergeEvery is how often Merge looks.
const mergeEvery = 10 * time.Millisecond

// mergePatience is barrierPatience of Merge: master and better master both have the addresses
// meanwhile, and the wait does not add a service that is missing.
const mergePatience = 500 * time.Millisecond

// Merge waits until both directors of a pair have all that was in either table at the call:
// Barrier, and Synced. The error is that of Barrier. After ErrLacking both have all that they
// can enter.
func (r *Replica) Merge(ctx context.Context) error {
	began := time.Now()
	_, lacking := r.barrier(ctx, mergePatience)
	if lacking != nil && !errors.Is(lacking, ErrLacking) {
		return lacking
	}
	for !r.Synced(began) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the table of the other director is not here: %w", context.Cause(ctx))
		case <-time.After(mergeEvery):
		}
	}
	return lacking
}
