// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Edits of one director are serialised by flock(2) on a file that is made with
// the director and removed with it. The lock is held while a command writes to
// the kernel's table, or reads it where reading without the lock succeeds even in
// a reader's turn (turn.go) not; never while a command waits for input or output.

const (
	// DefaultLockTimeout is how long an edit waits for the lock.
	DefaultLockTimeout = 10 * time.Second
	// LockTimeoutVariable is the environment variable that says otherwise, as a
	// duration of Go's time.ParseDuration ("500ms", "1m").
	LockTimeoutVariable = "IMBANG_LOCK_TIMEOUT"

	// lockPollMin and lockPollMax bound the interval at which a taken lock is
	// tried again. flock(2) has no time limit of its own, and a thread that
	// waits in it cannot be called back.
	lockPollMin, lockPollMax = 100 * time.Microsecond, time.Millisecond
	// lockGap is how long a handle leaves the lock alone between two batches:
	// at least two polls of those who wait.
	lockGap = 2 * lockPollMax
)

// setLockTimeout is that of SetLockTimeout, plus one; 0 if there is none.
var setLockTimeout atomic.Int64

// SetLockTimeout sets how long this process waits for the lock; it comes before
// the environment variable. 0 does not wait at all.
func SetLockTimeout(d time.Duration) { setLockTimeout.Store(int64(d) + 1) }

func lockTimeout() (time.Duration, error) {
	if d := setLockTimeout.Load(); d != 0 {
		return time.Duration(d - 1), nil
	}
	text := os.Getenv(LockTimeoutVariable)
	if text == "" {
		return DefaultLockTimeout, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s=%s: want a duration such as 500ms or 10s", LockTimeoutVariable, text)
	}
	return d, nil
}

// LockedError says that another process held the lock for as long as this one
// was to wait for it.
type LockedError struct {
	Waited time.Duration
	Holder Holder
}

func (e *LockedError) Error() string {
	const more = "to wait longer: --lock-timeout of imbang, or " + LockTimeoutVariable
	by := "a process that /proc/locks does not show here, perhaps in another PID namespace, holds it"
	if h := e.Holder; h.PID != 0 {
		by = fmt.Sprintf("process %d (%s) holds it", h.PID, h.Command)
		if h.Stopped {
			by += fmt.Sprintf(" and is stopped: kill -CONT %d resumes it, kill -KILL %d ends it and the next command repairs the table", h.PID, h.PID)
		}
	}
	return fmt.Sprintf("the director's table is locked, for longer than %v: %s (%s)", e.Waited, by, more)
}

// acquire takes the lock of an open file, within the time for it.
func acquire(f *os.File) error {
	_, err := acquireWhile(f, always)
	return err
}

// acquireWhile is acquire, but gives up without an error when wanted returns false before the
// lock is free. It reports whether it has taken the lock.
func acquireWhile(f *os.File, wanted func() bool) (bool, error) {
	limit, err := lockTimeout()
	if err != nil {
		return false, err
	}
	began := time.Now()
	for pause := lockPollMin; wanted(); pause = min(2*pause, lockPollMax) {
		err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if time.Since(began) >= limit {
			return false, &LockedError{limit, holderOf(f)}
		}
		time.Sleep(pause)
	}
	return false, nil
}

func always() bool { return true }

// openLock opens the file of the lock. With create false a director that was
// never made is ErrNotLoaded.
func (in instance) openLock(create bool) (*os.File, error) {
	// A bad timeout is an error for every command, also for one that does not wait.
	if _, err := lockTimeout(); err != nil {
		return nil, err
	}
	name := filepath.Join(in.base(), strconv.FormatUint(in.cookie, 10)+".lock")
	flags := unix.O_RDWR
	if create {
		flags |= unix.O_CREAT
	}
	for {
		if create {
			if err := os.MkdirAll(in.base(), 0o755); err != nil {
				return nil, fmt.Errorf("state directory: %w", err)
			}
		}
		f, err := openFile(name, flags)
		if errors.Is(err, os.ErrNotExist) && create {
			continue // another's detach took the directory away
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil, ErrNotLoaded
		}
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		return f, nil
	}
}

// lock opens the file of the lock and takes it; to close the file gives it up.
func (in instance) lock(create bool) (*os.File, error) {
	for {
		f, err := in.openLock(create)
		if err != nil {
			return nil, err
		}
		if err := acquire(f); err != nil {
			f.Close()
			return nil, err
		}
		// A detach may have removed the file while we waited for it.
		if stillThere(f) {
			return f, nil
		}
		f.Close()
	}
}

// openFile is os.OpenFile for a plain file. That one makes an epoll instance
// first, in case the file can be waited for.
func openFile(name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != unix.EINTR {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// stillThere reports whether an open file is the one that its name leads to.
func stillThere(f *os.File) bool {
	var mine, now unix.Stat_t
	return unix.Fstat(int(f.Fd()), &mine) == nil && unix.Stat(f.Name(), &now) == nil && mine.Ino == now.Ino
}

// ErrRemoved says that the director of a handle is no more.
var ErrRemoved = fmt.Errorf("the director was removed while this command ran (imbang detach): %w", ErrNotLoaded)

// exclusively runs fn with the lock held and the table at rest: if a command was
// killed at an edit, its table is repaired first. Within fn it may be called
// again.
func (d *Director) exclusively(fn func() error) error { return d.exclusivelyWhile(always, fn) }

// exclusivelyWhile is exclusively, but does nothing when wanted returns false before the lock
// is free.
func (d *Director) exclusivelyWhile(wanted func() bool, fn func() error) error {
	if d.held || d.lock == nil { // a virtual director has no other user
		return fn()
	}
	d.letReaders()
	if has, err := acquireWhile(d.lock, wanted); !has {
		return err
	}
	d.held = true
	defer d.release()
	if !stillThere(d.lock) {
		return ErrRemoved
	}
	set, err := d.current()
	if err != nil {
		return err
	}
	d.own = nil
	if set.Generation != d.seen {
		d.forgetTable()
	}
	if beingEdited(set.Generation) {
		if _, err := d.load(); err != nil {
			return fmt.Errorf("repair the table after a command that was killed: %w", err)
		}
	}
	return fn()
}

// release gives the lock up. The table that was read stays, for the next edit
// if no other came between.
func (d *Director) release() {
	if d.marked || len(d.staged.inOrder) > 0 { // an edit failed in the middle
		d.forgetTable()
	}
	d.held, d.released = false, time.Now()
	_ = flock(d.lock, unix.LOCK_UN) // it is held
}
