// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"imbang/internal/lab/process"
)

// director is one of the two, with what it runs: in a network namespace (namespaced) or as an
// emulated machine (machine).
type director interface {
	// configure gives it what it runs in a trial, before it starts.
	configure(c configuration) error
	// startDaemon starts the data plane, startVRRP the process that moves the addresses, and
	// start both, as a machine that boots.
	startDaemon(ctx context.Context) error
	startVRRP(ctx context.Context) error
	start(ctx context.Context) error
	// synced reports whether its table is loaded and, with synchronization, equal to the other
	// one's. isBackup reports whether it follows another one.
	synced(ctx context.Context) bool
	isBackup(ctx context.Context) bool

	// killVRRP kills the process that moves the addresses, with those that it started.
	killVRRP(ctx context.Context) error
	// resign ends it by SIGTERM.
	resign(ctx context.Context) error
	killAll() error
	// loseLink has it notice that its port of the clients' network went down.
	loseLink(ctx context.Context) error
	// handOver has the other director become master, as an operator does.
	handOver(ctx context.Context) error
	// killDaemon kills the daemon of the data plane. upgrade replaces all that runs, as the
	// upgrade of a package does.
	killDaemon() error
	upgrade(ctx context.Context) error
	// pids are all its processes, a parent before its children.
	pids() []int

	// complaint is what its programs said last.
	complaint() string
	// copyLogs copies what they said to a directory.
	copyLogs(to string) error
	// end ends what a trial started; detach removes what stays from trial to trial.
	end() error
	detach() error
}

// What directors of some variants cannot do (Fault.concerns).
var (
	errNoMove   = errors.New("keepalived has no command that moves addresses: fault resign ends it")
	errNoDaemon = errors.New("an emulated machine has no daemon of imbang")
)

// files are a director's number and the directory of its files.
type files struct {
	number int
	dir    string
}

// The logs that there may be.
var logNames = []string{"imbang.log", "vrrp.log", consoleLog}

func (f files) file(name string) string { return filepath.Join(f.dir, name) }

// renew removes the files of an earlier trial.
func (f files) renew() error { return errors.Join(os.RemoveAll(f.dir), os.Mkdir(f.dir, 0o700)) }

// isSaid reports whether a text is in a log.
func (f files) isSaid(log, text string) bool {
	b, err := os.ReadFile(f.file(log))
	return err == nil && strings.Contains(string(b), text)
}

func (f files) complaint() string {
	var said []string
	for _, log := range logNames {
		lines := process.Said(f.file(log))
		if last := lines[len(lines)-1]; last != "" {
			said = append(said, last)
		}
	}
	return strings.Join(said, "; ")
}

func (f files) copyLogs(to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, name := range logNames {
		b, err := os.ReadFile(f.file(name))
		if err != nil {
			continue // not started
		}
		if err := os.WriteFile(filepath.Join(to, fmt.Sprintf("dir%d-%s", f.number+1, name)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
