// SPDX-License-Identifier: Apache-2.0

// Package perform performs a synchronization role for a network namespace: it makes sure
// that no other process does, leaves word of it (package running), and goes on with the
// director that an upgrade puts in place.
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
	"imbang/internal/director"
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

// Options are what a role needs beside its configuration.
type Options struct {
	Dir    string // of the network namespace (place.Dir)
	By     string // running.ByCommand or running.ByDaemon
	Log    *slog.Logger
	Counts *synchronize.Counts
	// Ready, if set, is called when the sockets are open, again after each upgrade of the
	// director; c has every default filled in.
	Ready func(c synchronize.Config)
	// Missing, if set, is called when it has changed which services and servers a backup
	// lacks.
	Missing func([]synchronize.Missing)
}

// Role performs a role, for the director of the calling thread's network namespace, until
// the context ends, which is no error. As of Linux, a device that is not there (unix.ENODEV)
// is found before a role that runs already (*running.Runs).
func Role(ctx context.Context, c synchronize.Config, o Options) (err error) {
	if err := c.Complete(MTU); err != nil {
		return err
	}
	lock, err := running.Take(o.Dir, running.Role{
		Role: string(c.Role), PID: os.Getpid(), Interface: c.Interface, SyncID: c.SyncID, Group: c.Group, Port: c.Port, TTL: c.TTL,
		MaxLength: c.MaxLen, Since: time.Now(), By: o.By,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	return throughUpgrades(ctx, o.Log, string(c.Role), func() error { return withDirector(ctx, c, o) })
}

// throughUpgrades performs a role with one director after the other.
func throughUpgrades(ctx context.Context, log *slog.Logger, role string, with func() error) error {
	for {
		err := with()
		if !errors.Is(err, director.ErrReplaced) || ctx.Err() != nil {
			return err
		}
		log.Info("the director was upgraded: the role goes on with the new one", "role", role)
	}
}

// withDirector performs a role for the director that there is now. The error wraps
// director.ErrReplaced once that is upgraded, whether the role has noticed it or not.
func withDirector(ctx context.Context, c synchronize.Config, o Options) error {
	d, err := director.Open()
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	replaced := make(chan error, 1)
	go func() {
		replaced <- watch(ctx, d.Generation, changed)
		cancel()
	}()
	err = synchronize.Run(ctx, c, synchronize.Options{
		Table: d, Log: o.Log, Counts: o.Counts, Tell: tell, Changed: changed, Missing: o.Missing,
		Ready: func() {
			if o.Ready != nil {
				o.Ready(c)
			}
		},
	})
	cancel()
	return errors.Join(err, <-replaced)
}

// generations is the time between two looks at the table's generation.
const generations = time.Second

// watch sends when the table has changed, until the context ends or the director is upgraded
// (director.ErrReplaced). Other errors it leaves to the role, which reads more.
func watch(ctx context.Context, generation func() (uint64, error), changed chan<- struct{}) error {
	tick := time.NewTicker(generations)
	defer tick.Stop()
	last, _ := generation()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := generation()
		if errors.Is(err, director.ErrReplaced) {
			return err
		}
		if err != nil || now == last {
			continue
		}
		last = now
		select {
		case changed <- struct{}{}:
		default: // one waits to be read
		}
	}
}

// tell opens the source of a master: what the director's synchronization rule selects.
func tell() (synchronize.Source, error) {
	t, err := director.Tell(director.TellRule{})
	if err != nil {
		return nil, err
	}
	return t, nil
}
