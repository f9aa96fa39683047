// SPDX-License-Identifier: Apache-2.0

package perform

import (
	"errors"
	"log/slog"
	"os"
	"testing"

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
		c := synchronize.Config{Role: synchronize.Backup, Interface: device}
		return Role(t.Context(), dir, running.ByCommand, c, nil, slog.New(slog.DiscardHandler), &synchronize.Counts{}, func(synchronize.Config) { t.Error("ready") })
	}
	if err := try("nosuch0"); !errors.Is(err, unix.ENODEV) {
		t.Error(err)
	}
	if err := try("lo"); !errors.As(err, new(*running.Runs)) {
		t.Error(err)
	}
}
