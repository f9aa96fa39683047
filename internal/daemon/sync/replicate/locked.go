// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"errors"
	"fmt"

	"imbang/internal/director"
)

// use takes the lock, with the machine.
func (r *Replica) use() {
	r.mu.Lock()
	for r.busy {
		r.inside.Wait()
	}
}

// outside does something that takes time, without the lock: State answers meanwhile, and all
// others wait for the machine.
func (r *Replica) outside(do func()) {
	r.busy = true
	r.mu.Unlock()
	do()
	r.mu.Lock()
	r.busy = false
	r.inside.Broadcast()
}

// isLocked reports whether another command had the table locked for as long as this one waits.
func isLocked(err error) bool {
	var locked *director.LockedError
	return errors.As(err, &locked)
}

// noteLock counts a table that is locked, and logs it once until it is free.
func (r *Replica) noteLock(err error) {
	r.state.Locked++
	if !r.lockNoted {
		r.lockNoted = true
		r.o.Log.Warn("replication: changes wait until the table is free", "error", err)
	}
}

// unlock requests the whole table when a table that was locked for too long is free. Until
// then it stays so.
func (r *Replica) unlock() error {
	if !r.locked {
		return nil
	}
	var err error
	r.outside(func() { _, err = r.o.Table.Replicate(nil) })
	if isLocked(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	r.locked, r.lockNoted = false, false
	r.o.Log.Info("replication: the table is free again: " + r.config.Role.from() + "'s is requested")
	r.receiver.RequestBulk(r.now(), &r.out)
	return r.do()
}
