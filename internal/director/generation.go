// SPDX-License-Identifier: Apache-2.0

package director

import (
	"sync/atomic"
	"time"

	"imbang/internal/bpfobj"
)

// The generation, a number in the kernel's settings, says which table there is.
// It works as the kernel's seqcount does:
//
//  1. Only who holds the lock changes it, and what it counts: services,
//     servers, their order, mark rules, settings.
//  2. Before an edit's first write it becomes odd; behind its last write, even.
//     Both are the next number. What one write can change, in the settings
//     themselves, moves it by two.
//  3. So a reader that finds the same even number before its first read and
//     behind its last one has read one table, which there was at one time.
//  4. An odd number while the lock is free is of a command that was killed. The
//     next one to take the lock repairs the table and makes the number even.
//
// Each step is a system call of one thread. Processors that do not keep the
// order of a thread's writes, or reads, are made to by a fence between the
// number and the rest.

// beingEdited reports whether a generation is of a table that a command edits, or
// was killed at.
func beingEdited(generation uint64) bool { return generation&1 != 0 }

var fenced atomic.Uint32

// fence orders the reads and writes before it before those behind it: an atomic
// addition is a full barrier, also for what the kernel did for this thread.
func fence() { fenced.Add(1) }

// Generation is the number of the table that there is now: services, servers,
// marks and settings. It is even while the table is at rest and another one after
// each change; odd while a command edits, or after one was killed at that and
// before the next one repairs the table. It takes no lock and costs one system
// call: to learn of changes, poll it. After an upgrade it is ErrReplaced. A change of it may have changed nothing
// that a listing shows (counters that were zeroed).
func (d *Director) Generation() (uint64, error) {
	set, err := d.current()
	return set.Generation, err
}

// current returns the settings, unless an upgrade has replaced the director.
func (d *Director) current() (bpfobj.LbSettings, error) {
	set, err := d.config()
	if err == nil && set.Successor != 0 {
		err = ErrReplaced
	}
	return set, err
}

// halfWritten reports whether a command edits, or was killed at that.
func (d *Director) halfWritten() bool {
	now, err := d.Generation()
	return err == nil && beingEdited(now)
}

// readPatience is how long a reader tries without the lock.
var readPatience = 20 * time.Millisecond

// readTries is how many times it reads a table that has changed meanwhile.
const readTries = 3

// turnPatience is how long it continues in its turn. It is longer than turnRest, so every
// editing handle waits for the reader at least once.
var turnPatience = 2 * turnRest

// read runs fn on the table without changing it and, if it can, without the
// lock: fn is run again if the table was edited meanwhile, so it must set its
// results anew. When that did not succeed three times, or another command is writing
// for 20 ms, it takes a turn, in which those who are about to edit let it finish for
// 50 ms. It reads under the lock after edits have overtaken it for 2 s in its turn. It is a
// LockedError if a command that is stopped holds the lock; a table that was half
// written is nothing to show.
func (d *Director) read(fn func(*table) error) error {
	if d.held || d.lock == nil { // what waits to be written counts, too
		return d.editNow(fn)
	}
	began := time.Now()
	for tries, pause := 0, lockPollMin; tries < readTries && time.Since(began) < readPatience; {
		set, err := d.current()
		if err != nil {
			return err
		}
		if beingEdited(set.Generation) {
			time.Sleep(pause)
			pause = min(2*pause, lockPollMax)
			continue
		}
		if done, err := d.readOnce(set, fn); done {
			return err
		}
		tries++
	}
	if err := d.takeTurn(); err != nil {
		return err
	}
	defer d.giveTurn()
	for began := time.Now(); time.Since(began) < turnPatience; {
		// Waits for a writer. Takes the lock only to repair the table after a killed command,
		// because this process may be stopped while it has the lock.
		if err := d.exclusivelyWhile(d.halfWritten, func() error { return nil }); err != nil {
			return err
		}
		set, err := d.current()
		if err != nil {
			return err
		}
		if beingEdited(set.Generation) { // by one who waited for the lock already
			continue
		}
		if done, err := d.readOnce(set, fn); done {
			return err
		}
	}
	return d.editNow(fn)
}

// readOnce runs fn on the table of a generation; it reports whether that one was
// there to the end. What fn says of another is worth nothing.
func (d *Director) readOnce(set bpfobj.LbSettings, fn func(*table) error) (bool, error) {
	fence()
	t, err := d.table, error(nil)
	if t == nil || d.seen != set.Generation {
		t, err = d.readTable(set)
	}
	if err == nil {
		err = fn(t)
	}
	fence()
	now, failed := d.Generation()
	if failed != nil {
		return true, failed
	}
	if now != set.Generation {
		return false, nil // whatever err is
	}
	if err == nil {
		d.table, d.seen = t, now
	}
	return true, err
}
