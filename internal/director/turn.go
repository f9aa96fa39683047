// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A reader that was overtaken by edits does not lock them out, since it may be stopped at
// any moment. It takes a turn, which is a lock of the first byte of the lock's file, of
// which flock(2) knows nothing; who is about to edit lets it finish, but not for long.

// readerTurn is how long an edit lets readers finish.
const readerTurn = 50 * time.Millisecond

// turnRest is for how long a handle does not wait again for a reader that took longer.
const turnRest = time.Second

func turnLock(kind int16) unix.Flock_t { return unix.Flock_t{Type: kind, Len: 1} }

// takeTurn takes a turn, beside other readers; never waits.
func (d *Director) takeTurn() error {
	l := turnLock(unix.F_RDLCK)
	if err := unix.FcntlFlock(d.lock.Fd(), unix.F_OFD_SETLK, &l); err != nil {
		return fmt.Errorf("lock the first byte of %s: %w", d.lock.Name(), err)
	}
	d.inTurn = true
	return nil
}

func (d *Director) giveTurn() {
	l := turnLock(unix.F_UNLCK)
	_ = unix.FcntlFlock(d.lock.Fd(), unix.F_OFD_SETLK, &l) // it is held
	d.inTurn = false
}

// letReaders waits for readers whose turn it is.
func (d *Director) letReaders() {
	if d.inTurn || time.Since(d.rested) < turnRest {
		return
	}
	for began := time.Now(); ; time.Sleep(lockPollMax) {
		l := turnLock(unix.F_WRLCK)
		if err := unix.FcntlFlock(d.lock.Fd(), unix.F_OFD_GETLK, &l); err != nil || l.Type == unix.F_UNLCK {
			return
		}
		if time.Since(began) >= readerTurn {
			d.rested = time.Now()
			return
		}
	}
}
