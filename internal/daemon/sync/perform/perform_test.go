// SPDX-License-Identifier: Apache-2.0

package perform

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	synchronize "imbang/internal/daemon/sync"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
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

// A change of the table is reported once, one that cannot be read is not, and an upgrade
// ends it.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type look struct {
			generation uint64
			err        error
		}
		var now atomic.Pointer[look]
		now.Store(&look{2, nil})
		generation := func() (uint64, error) { return now.Load().generation, now.Load().err }
		changed := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- watch(ctx, generation, changed) }()
		for i, step := range []struct {
			generation uint64
			err        error
			want       int
		}{{2, nil, 0}, {4, nil, 1}, {4, nil, 0}, {6, errors.New("gone"), 0}, {6, nil, 1}} {
			synctest.Wait()
			now.Store(&look{step.generation, step.err})
			time.Sleep(generations)
			synctest.Wait()
			if len(changed) != step.want {
				t.Errorf("step %d: %d reports", i, len(changed))
			}
			for len(changed) > 0 {
				<-changed
			}
		}
		now.Store(&look{6, director.ErrReplaced})
		if err := <-ended; err != director.ErrReplaced {
			t.Errorf("upgraded: %v", err)
		}
		now.Store(&look{6, nil})
		go func() { ended <- watch(ctx, generation, changed) }()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
