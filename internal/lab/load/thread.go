// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// onThread runs f on a thread of its own, which ends with it: f may change
// the thread's namespace and timer slack and never put them back.
//
// The process's first thread is avoided. It cannot end, and everything that
// reads /proc/self/ns would see the namespace it was left in.
func onThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine holds the first thread, another one
			// cannot get it.
			began := make(chan struct{})
			go func() {
				runtime.LockOSThread()
				close(began)
				f()
			}()
			<-began
			runtime.UnlockOSThread()
			return
		}
		f() // ends locked, which ends the thread
	}()
}

// InNamespace runs f on a thread of its own in the network namespace at path,
// and waits for it. What f starts is in that namespace too.
func InNamespace(path string, f func() error) error {
	done := make(chan error, 1)
	onThread(func() {
		err := enterNamespace(path)
		if err == nil {
			err = f()
		}
		done <- err
	})
	return <-done
}

// enterNamespace moves the calling thread into the network namespace at path;
// an empty path stays.
func enterNamespace(path string) error {
	if path == "" {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("namespace %s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("namespace %s: enter: %w (needs CAP_SYS_ADMIN)", path, err)
	}
	return nil
}

// sharpTimers makes the thread's sleeps end when asked rather than up to
// 50 us later, the kernel's default slack, which would be added to every
// response time.
func sharpTimers() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// takePrecedence lets the calling thread have a CPU soon whenever it wants one:
// the lowest niceness, and slices so short that it is always its turn (Linux
// 6.12). Real time would be stopped for 50 ms of each second in which it is
// busy. It reports whether that is allowed.
func takePrecedence() bool {
	const slice = 100_000 // ns, the shortest
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: -20, Runtime: slice}
	return unix.SchedSetAttr(0, &attr, 0) == nil
}

var processors sync.Mutex

// reserve gives the Go scheduler n more processors until release is called: a
// client keeps its own while it sleeps (see enter), and the rest of the
// process must not wait for it.
func reserve(n int) (release func()) {
	change := func(by int) {
		processors.Lock()
		defer processors.Unlock()
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + by)
	}
	change(n)
	return func() { change(-n) }
}
