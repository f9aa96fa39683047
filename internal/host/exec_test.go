// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"runtime"
	"slices"
	"testing"
)

// /sys shows the devices of the namespace to the thread that remounted it, and to no other.
func TestRemountSys(t *testing.T) {
	r := needNamespaces(t)
	n := newNamespace(t, r.Name("sys"))
	devices := func() (names []string, err error) {
		entries, err := os.ReadDir("/sys/class/net")
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names, err
	}
	outside, err := devices()
	must(t, err)
	var inside []string
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		done <- n.Do(func() (err error) {
			if err := remountSys(n.Name()); err != nil {
				return err
			}
			inside, err = devices()
			return err
		})
	}()
	must(t, <-done)
	if !slices.Equal(inside, []string{"lo"}) {
		t.Errorf("inside: %q", inside)
	}
	if now, err := devices(); err != nil || !slices.Equal(now, outside) {
		t.Errorf("outside: %q, %v, before %q", now, err, outside)
	}
}

// A program that cannot be executed is an error of execve.
func TestExecReturnsErrors(t *testing.T) {
	r := needNamespaces(t)
	n := newNamespace(t, r.Name("exec"))
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- n.Exec("/etc/passwd", []string{"passwd"}, nil)
	}()
	if err := <-done; !os.IsPermission(err) {
		t.Errorf("%v, want: permission denied", err)
	}
}
