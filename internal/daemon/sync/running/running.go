// SPDX-License-Identifier: Apache-2.0

// Package running keeps a file for each connection synchronization role that runs in a
// network namespace, of the kernel's protocol or of imbang's own: what it was started with, and by which process. The file is locked
// (flock(2)) by the process that performs the role, so that a file without lock is of
// one that was killed, and counts for nothing.
//
// Invariants:
//
//  1. A file is written, and locked, before it gets its name. A process that opens a file by
//     name and finds it locked reads what the holder of the lock wrote.
//  2. The lock ends with its process: while it is held, the process id in the file is
//     that of the holder, and of no later process.
//  3. Names are given and removed under an exclusive lock of a file of its own, so that
//     of two processes one gets the role.
//  4. Everybody else locks shared, and for the time of a look only: looks do not hinder
//     each other, nor a process that starts.
package running

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// Replication is the name under which either role of imbang's own protocol runs: there
// is one of them in a network namespace.
const Replication = "replication"

// Kernel lists the roles of the kernel's protocol, in the order of listings.
var Kernel = []string{"master", "backup"}

// Roles lists all names, in the order of listings.
var Roles = []string{"master", "backup", Replication}

// What a role is performed by.
const (
	ByCommand = "imbang sync" // a process of its own
	ByDaemon  = "imbang run"  // as its configuration says
)

// Role is a role that runs.
type Role struct {
	Role      string     `json:"role"` // master, backup or replication
	PID       int        `json:"pid"`
	Interface string     `json:"interface"`
	SyncID    uint8      `json:"sync_id"`
	Group     netip.Addr `json:"group"`
	Port      uint16     `json:"port"`
	TTL       uint8      `json:"ttl"`
	MaxLength int        `json:"max_length"` // of a message [bytes]
	Since     time.Time  `json:"since"`
	By        string     `json:"by"` // ByCommand or ByDaemon
	// Replicates is what replication does. Of the fields above it has PID, Interface, Since and By.
	Replicates *Replicates `json:"replicates,omitempty"`
}

// Replicates is a role of imbang's own protocol.
type Replicates struct {
	As     string           `json:"as"` // master, backup or pair
	Listen netip.AddrPort   `json:"listen"`
	To     []netip.AddrPort `json:"to"`
	Group  uint16           `json:"group"`
}

// Name is the role in words.
func (r *Role) Name() string {
	if r.Replicates != nil {
		return r.Role + " (" + r.Replicates.As + ")"
	}
	return r.Role
}

// ErrNone says that the role does not run.
var ErrNone = errors.New("the synchronization role does not run in this network namespace")

// Runs is the error of a role that runs already.
type Runs struct{ Role }

func (r *Runs) Error() string {
	return fmt.Sprintf("the synchronization role %s runs already in this network namespace (process %d, %s)", r.Name(), r.PID, r.By)
}

// Lock is a role that this process performs.
type Lock struct {
	dir, role string
	file      *os.File
}

func path(dir, role string) string { return filepath.Join(dir, "sync-"+role+".json") }

// Take takes a role in the directory of a network namespace, which it creates if need
// be, for the calling process. The error is of type *Runs if the role runs.
func Take(dir string, r Role) (_ *Lock, err error) {
	names, err := lockNames(dir)
	if err != nil {
		return nil, err
	}
	defer names.Close()
	if now, err := Get(dir, r.Role); err == nil {
		return nil, &Runs{now}
	} else if !errors.Is(err, ErrNone) {
		return nil, err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("synchronization role: %w", err)
	}
	at := path(dir, r.Role)
	f, err := os.OpenFile(at+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("synchronization role: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(at + ".new")
			f.Close()
		}
	}()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("synchronization role: lock %s: %w", at, err)
	}
	if _, err := f.Write(append(text, '\n')); err != nil {
		return nil, fmt.Errorf("synchronization role: %w", err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		return nil, fmt.Errorf("synchronization role: %w", err)
	}
	return &Lock{dir: dir, role: r.Role, file: f}, nil
}

// Release gives the role up. Its file is removed as far as that is possible.
func (l *Lock) Release() error {
	names, err := lockNames(l.dir)
	if err != nil {
		return errors.Join(err, l.file.Close()) // the file counts for nothing without its lock
	}
	defer names.Close()
	return errors.Join(os.Remove(path(l.dir, l.role)), l.file.Close())
}

// lockNames has no other process give or remove a name until the file is closed.
func lockNames(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("synchronization role: %w", host.AsRoot(err))
	}
	f, err := os.OpenFile(filepath.Join(dir, "sync.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("synchronization role: %w", host.AsRoot(err))
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("synchronization role: lock: %w", err)
	}
	return f, nil
}

// Get is a role that runs. The error wraps ErrNone if it does not.
func Get(dir, role string) (Role, error) {
	f, r, err := open(dir, role)
	if err != nil {
		return Role{}, err
	}
	return r, f.Close()
}

// List are the roles that run in the directory of a network namespace.
func List(dir string) (all []Role, err error) {
	for _, role := range Roles {
		r, err := Get(dir, role)
		if errors.Is(err, ErrNone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// open opens the file of a role that runs.
func open(dir, role string) (_ *os.File, r Role, err error) {
	none := fmt.Errorf("%s: %w", role, ErrNone)
	f, err := os.Open(path(dir, role))
	if errors.Is(err, os.ErrNotExist) {
		return nil, r, none
	}
	if err != nil {
		return nil, r, fmt.Errorf("synchronization role: %w", host.AsRoot(err))
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	held, err := isHeld(f)
	if err != nil {
		return nil, r, err
	}
	if !held {
		return nil, r, none
	}
	text, err := io.ReadAll(f)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, r, fmt.Errorf("synchronization role: %s: %w", f.Name(), err)
	}
	return f, r, nil
}

// isHeld reports whether a process performs the role of an open file.
func isHeld(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("synchronization role: lock: %w", err)
	}
	return false, flock(f, unix.LOCK_UN)
}

// flock is flock(2), again if a signal interrupts it.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
