// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Run names what one run of a program makes: PREFIX-PID-START-RANDOM-ROLE.
// START is the time the process started, so that another process with the same
// number is not taken for it.
type Run struct{ stem string }

// NewRun names a run of this process. Every call gives another name, so that
// one process may hold several.
func NewRun(prefix string) (Run, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return Run{}, fmt.Errorf("read our own start time: %w", err)
	}
	var b [3]byte
	rand.Read(b[:])
	return Run{fmt.Sprintf("%s-%d-%d-%s", prefix, os.Getpid(), start, hex.EncodeToString(b[:]))}, nil
}

// String is the stem that every name of the run begins with.
func (r Run) String() string { return r.stem }

// Name is the run's name for a part such as "dir".
func (r Run) Name(role string) string { return r.stem + "-" + role }

// Orphaned reports whether name was made by a Run with this prefix whose
// process is gone. Names that are not of that form are never orphaned.
func Orphaned(prefix, name string) bool {
	rest, ok := strings.CutPrefix(name, prefix+"-")
	if !ok {
		return false
	}
	parts := strings.SplitN(rest, "-", 4)
	if len(parts) < 3 || len(parts[2]) != 6 {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil || pid <= 0 {
		return false
	}
	start, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return false
	}
	now, err := startTime(pid)
	if err != nil {
		return errors.Is(err, os.ErrNotExist) // unreadable is not dead
	}
	return now != start
}

// Sweep removes the namespaces, with the processes inside, that crashed runs
// with this prefix left behind, and returns their names.
func Sweep(prefix string) ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, e := range entries {
		if !Orphaned(prefix, e.Name()) {
			continue
		}
		if err := removeNamespace(e.Name()); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}

// SweepFiles removes what crashed runs with this prefix left in a directory,
// and returns the names. Only files of our own user are touched.
func SweepFiles(dir, prefix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !Orphaned(prefix, e.Name()) || !ownedByUs(path) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}
