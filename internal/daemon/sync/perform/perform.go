// SPDX-License-Identifier: Apache-2.0

// Package perform performs a synchronization role for the whole network namespace: it
// makes sure that no other process does, and leaves word of it (package running).
package perform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/running"
)

// MTU is that of a network device [bytes]. The error of one that is not there wraps
// unix.ENODEV.
func MTU(device string) (int, error) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		// The standard library keeps no error number of a name that it does not find.
		if _, listed := net.Interfaces(); listed == nil {
			err = unix.ENODEV
		}
		return 0, fmt.Errorf("network device %q: %w", device, err)
	}
	return i.MTU, nil
}

// Role performs a role until the context ends. dir is that of the network namespace
// (place.Dir), by who does it (running.ByCommand or running.ByDaemon). ready is called with
// the complete configuration when the sockets are open.
//
// As of Linux, a device that is not there is the first thing that is wrong, a role that
// runs already (*running.Runs) the second.
func Role(ctx context.Context, dir, by string, c synchronize.Config, d synchronize.Table, log *slog.Logger, counts *synchronize.Counts, ready func(synchronize.Config)) (err error) {
	if err := c.Complete(MTU); err != nil {
		return err
	}
	lock, err := running.Take(dir, running.Role{
		Role: string(c.Role), PID: os.Getpid(), Interface: c.Interface, SyncID: c.SyncID, Group: c.Group, Port: c.Port, TTL: c.TTL,
		MaxLength: c.MaxLen, Since: time.Now(), By: by,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	return synchronize.Run(ctx, c, d, log, counts, func() { ready(c) })
}
