// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A directory stays while its process runs or hands over, and goes afterwards.
func TestSweepVRRP(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "7")
	there := func() bool {
		_, err := os.Stat(dir)
		return err == nil
	}
	f, err := TakeVRRP(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TakeVRRP(dir); !errors.Is(err, ErrVRRPRunning) {
		t.Errorf("%v", err)
	}
	sweepVRRP(base)
	if !there() {
		t.Fatal("removed while its process runs")
	}
	f.Close()
	if err := os.WriteFile(VRRPHandover(dir), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sweepVRRP(base)
	if !there() {
		t.Fatal("removed during a handover")
	}
	old := time.Now().Add(-2 * handoverTime)
	if err := os.Chtimes(VRRPHandover(dir), old, old); err != nil {
		t.Fatal(err)
	}
	sweepVRRP(base)
	if there() {
		t.Error("not removed")
	}
}

// The lock that a program leaves to the next one of its process is found, and no other one.
func TestInheritVRRP(t *testing.T) {
	dir := t.TempDir()
	f, err := TakeVRRP(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if InheritVRRP(dir) != nil {
		t.Fatal("that of a process that runs")
	}
	// Left open, as by an earlier program.
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if InheritVRRP(t.TempDir()) != nil {
		t.Fatal("that of another directory")
	}
	got := InheritVRRP(dir)
	if got == nil || int(got.Fd()) != fd {
		t.Fatalf("%v, want descriptor %d", got, fd)
	}
	got.Close()
}
