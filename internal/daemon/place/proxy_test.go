// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestSweepProxy(t *testing.T) {
	base, daemons := t.TempDir(), t.TempDir()
	ended, supervised, alone, waits := filepath.Join(base, "1"), filepath.Join(base, "2"), filepath.Join(base, "3"), filepath.Join(base, "4")
	for _, dir := range []string{ended, supervised, alone, waits} {
		f, err := TakeProxy(dir)
		if err != nil {
			t.Fatal(err)
		}
		if dir == supervised {
			defer f.Close()
			if _, err := TakeProxy(dir); !errors.Is(err, ErrProxyRunning) {
				t.Errorf("taken twice: %v", err)
			}
		} else {
			f.Close()
		}
	}
	// HAProxy goes on without its supervisor.
	l, err := net.Listen("unix", ProxyMaster(alone))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// A daemon has files there for the supervisor that is started next.
	daemon, err := Take(filepath.Join(daemons, "4"))
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	sweepProxy(base, daemons)
	for dir, want := range map[string]bool{ended: false, supervised: true, alone: true, waits: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v; it should be there: %v", filepath.Base(dir), err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(daemons, "*")); len(left) != 1 {
		t.Errorf("directories of daemons: %v", left)
	}
}

// A daemon that is started while others remove directories keeps what it writes there.
func TestSweepProxyWhileADaemonStarts(t *testing.T) {
	base, daemons := t.TempDir(), t.TempDir()
	dir := filepath.Join(base, "1")
	stop := make(chan struct{})
	var sweepers sync.WaitGroup
	for range 2 { // several supervisors have just been started
		sweepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
					sweepProxy(base, daemons)
				}
			}
		})
	}
	swept := 0
	for range 100 {
		lock, err := Take(filepath.Join(daemons, "1"))
		if err != nil {
			t.Error(err)
			break
		}
		at := filepath.Join(dir, "certificates")
		if _, err := os.Stat(at); err != nil {
			swept++
		}
		err = os.MkdirAll(at, 0o700)
		for range 5 {
			if _, gone := os.Stat(at); err == nil {
				err = gone
			}
			time.Sleep(50 * time.Microsecond)
		}
		if err != nil {
			t.Errorf("while a daemon has the directory: %v", err)
		}
		_ = os.RemoveAll(filepath.Dir(lock.Name())) // as Sweep does, so that the sweepers make it
		lock.Close()
		time.Sleep(500 * time.Microsecond)
	}
	close(stop)
	sweepers.Wait()
	sweepProxy(base, daemons)
	for _, of := range []string{base, daemons} {
		if left, _ := filepath.Glob(filepath.Join(of, "*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if swept < 2 {
		t.Error("it was never removed")
	}
	t.Logf("removed %d times", swept)
}
