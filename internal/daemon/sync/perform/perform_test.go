// SPDX-License-Identifier: Apache-2.0

package perform

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/running"
)

func TestMTU(t *testing.T) {
	if n, err := MTU("lo"); err != nil || n < 1280 {
		t.Error(n, err)
	}
	for _, device := range []string{"", "nosuch0"} {
		if _, err := MTU(device); !errors.Is(err, unix.ENODEV) {
			t.Errorf("%q: %v", device, err)
		}
	}
}

// What is wrong is found in Linux's order, before a socket is opened.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	l, err := running.Take(dir, running.Role{Role: "backup", PID: os.Getpid(), By: running.ByDaemon})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	try := func(device string) error {
		return Role(t.Context(), synchronize.Config{Role: synchronize.RoleBackup, Interface: device}, Options{
			Dir: dir, By: running.ByCommand, Log: slog.New(slog.DiscardHandler), Counts: &synchronize.Counts{},
			Ready: func(synchronize.Config) { t.Error("ready") },
		})
	}
	if err := try("nosuch0"); !errors.Is(err, unix.ENODEV) {
		t.Error(err)
	}
	if err := try("lo"); !errors.As(err, new(*running.Runs)) {
		t.Error(err)
	}
}

// A change of the table is reported once, and one that cannot be read is not.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, broken := uint64(2), error(nil)
		changed := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go watch(ctx, func() (uint64, error) { return now, broken }, changed)
		for i, step := range []struct {
			generation uint64
			err        error
			want       int
		}{{2, nil, 0}, {4, nil, 1}, {4, nil, 0}, {6, errors.New("gone"), 0}, {6, nil, 1}} {
			synctest.Wait()
			now, broken = step.generation, step.err
			time.Sleep(generations)
			synctest.Wait()
			if len(changed) != step.want {
				t.Errorf("step %d: %d reports", i, len(changed))
			}
			for len(changed) > 0 {
				<-changed
			}
		}
		cancel()
	})
}
