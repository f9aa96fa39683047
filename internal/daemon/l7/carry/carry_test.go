// SPDX-License-Identifier: Apache-2.0

package carry

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"imbang/internal/daemon/l7"
)

// A configuration that HAProxy could not check in time is not one that it refuses: it is tried again.
func TestCheckNotInTime(t *testing.T) {
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("needs HAProxy: install the package haproxy")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "haproxy")
	script := "#!/bin/sh\n[ \"$1\" = -c ] && exec sleep 20\nexec " + haproxy + " \"$@\"\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	k := &Keeper{Options: Options{Dir: dir, Program: program, Log: slog.New(slog.DiscardHandler)}, wake: make(chan struct{}, 1), certificates: newCertificates(dir)}
	w := &Wanted{Config: &l7.Config{}}
	k.Set(w)
	if err := k.detect(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := k.step(ctx, w); !errors.Is(err, context.DeadlineExceeded) || len(k.refused) > 0 {
		t.Errorf("%v; refused: %v", err, k.refused)
	}
}
