// SPDX-License-Identifier: Apache-2.0

package perform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"

	"imbang/internal/daemon/sync/replicate"
	"imbang/internal/daemon/sync/running"
	"imbang/internal/director"
)

// A role goes on after each upgrade, and ends with its context or another error.
func TestThroughUpgrades(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	replaced := fmt.Errorf("read: %w", director.ErrReplaced)
	gone := errors.New("gone")
	for _, c := range []struct {
		results []error
		want    error
	}{{[]error{nil}, nil}, {[]error{replaced, replaced, nil}, nil}, {[]error{replaced, gone}, gone}} {
		n := 0
		err := throughUpgrades(ctx, slog.New(slog.DiscardHandler), "replication", func() error { n++; return c.results[n-1] })
		if !errors.Is(err, c.want) || n != len(c.results) {
			t.Errorf("%v: %v after %d", c.results, err, n)
		}
	}
	n := 0
	err := throughUpgrades(ctx, slog.New(slog.DiscardHandler), "replication", func() error { n++; cancel(); return replaced })
	if !errors.Is(err, replaced) || n != 1 {
		t.Errorf("ended: %v after %d", err, n)
	}
}

// One role replicates in a network namespace, master or backup.
func TestReplicationRefused(t *testing.T) {
	dir := t.TempDir()
	l, err := running.Take(dir, running.Role{Role: running.Replication, PID: os.Getpid(), By: running.ByDaemon, Replicates: &running.Replicates{As: "master"}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	c := replicate.Config{Role: replicate.Backup, Listen: netip.MustParseAddrPort("10.0.0.1:0"), To: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.2:0")}}
	o := ReplicationOptions{Dir: dir, By: running.ByCommand, Log: slog.New(slog.DiscardHandler), Ready: func(*replicate.Replica) { t.Error("ready") }}
	if err := Replication(t.Context(), c, o); !errors.As(err, new(*running.Runs)) || !strings.Contains(err.Error(), "role replication (master) runs already") {
		t.Error(err)
	}
	c.To = nil
	if err := Replication(t.Context(), c, o); err == nil || !strings.Contains(err.Error(), "to: missing") {
		t.Error(err)
	}
}
