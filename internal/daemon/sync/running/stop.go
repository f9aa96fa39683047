// SPDX-License-Identifier: Apache-2.0

package running

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// look is the time between two looks whether a process has ended.
const look = 10 * time.Millisecond

// OfDaemon is the error of a role that a configuration has.
type OfDaemon struct{ Role }

func (r *OfDaemon) Error() string {
	return fmt.Sprintf("the synchronization role %s is part of imbang run (process %d): remove synchronization.%s from its configuration, and imbang reload",
		r.Role.Role, r.PID, r.Role.Role)
}

// Stop sends SIGTERM to the process that performs a role, and waits until it has given
// the role up, for the patience at most. The error wraps ErrNone if the role does not
// run, and is of type *OfDaemon if a daemon performs it.
func Stop(dir, role string, patience time.Duration) error {
	f, r, err := open(dir, role)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.By != ByCommand {
		return &OfDaemon{r}
	}
	process, err := unix.PidfdOpen(r.PID, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop %s: process %d: %w", role, r.PID, err)
	}
	if err == nil {
		defer unix.Close(process)
	}
	// The lock is looked at again: if it is held now, the id was that of its holder when
	// the process was opened (invariant 2), and of no other that got the id since.
	held, lockErr := isHeld(f)
	switch {
	case lockErr != nil:
		return lockErr
	case !held:
		return fmt.Errorf("%s: %w", role, ErrNone)
	case err != nil:
		return fmt.Errorf("stop %s: process %d is not to be seen here: run the command in its PID namespace", role, r.PID)
	}
	if err := unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop %s: process %d: %w", role, r.PID, err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(look) {
		held, err := isHeld(f)
		if err != nil || !held {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("stop %s: process %d got SIGTERM and has not ended within %v (kill -9 %d ends it at once)", role, r.PID, patience, r.PID)
		}
	}
}
