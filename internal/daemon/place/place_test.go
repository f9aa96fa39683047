// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A directory is taken while others remove it, as Sweep of another process does, and the
// lock that Take returns is of the file that is there.
func TestTakeWhileItIsSwept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "1")
	stop := make(chan struct{})
	var sweepers sync.WaitGroup
	swept := 0
	sweepers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if f, err := take(dir, ErrRunning); err == nil {
				_ = os.RemoveAll(dir)
				f.Close()
				swept++
			}
			time.Sleep(100 * time.Microsecond) // a sweep is rare: it does not hold the lock all the time
		}
	})
	for range 500 {
		f, err := Take(dir)
		if err != nil {
			t.Error(err)
			break
		}
		locked, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if there, err := os.Stat(filepath.Join(dir, "lock")); err != nil || !os.SameFile(locked, there) {
			t.Errorf("the lock is of another file: %v", err)
		}
		f.Close()
		time.Sleep(50 * time.Microsecond)
	}
	close(stop)
	sweepers.Wait()
	if swept == 0 {
		t.Error("it was never removed")
	}
	t.Logf("removed %d times", swept)
}

// A daemon that runs keeps its directory from another one.
func TestTakeIsExclusive(t *testing.T) {
	dir := t.TempDir()
	f, err := Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(dir); !errors.Is(err, ErrRunning) {
		t.Error(err)
	}
	f.Close()
	if f, err = Take(dir); err != nil {
		t.Fatal(err)
	}
	f.Close()
}
