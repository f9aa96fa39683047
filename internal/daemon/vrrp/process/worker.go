// SPDX-License-Identifier: Apache-2.0

package process

import (
	"runtime"
	"sync/atomic"
	"time"
)

// worker calls the kernel where it may wait for RTNL, the lock of the network's
// configuration: any program can have it for seconds, for example while it deletes devices.
// The loop advertises meanwhile. The worker has a thread of its own, does one thing after the
// other, in the order of the requests, and posts results to the loop.
type worker struct {
	poll   *poller
	ending bool
	ended  chan struct{}
	// since is when a call of the kernel began that has not ended, and answered when the last one
	// ended; 0: none.
	since, answered atomic.Int64
}

func newWorker(isRealTime bool) (*worker, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	w := &worker{poll: p, ended: make(chan struct{})}
	go w.run(isRealTime)
	return w, nil
}

func (w *worker) run(isRealTime bool) {
	defer close(w.ended)
	runtime.LockOSThread() // the thread ends with the goroutine
	if isRealTime {
		_ = schedule(workerPriority) // the loop has said why it cannot be
	}
	for {
		for _, f := range w.poll.take() {
			w.since.Store(int64(now()))
			f()
			w.answered.Store(int64(now()))
			w.since.Store(0)
		}
		if w.ending || w.poll.wait(0) != nil {
			return
		}
	}
}

// do has the worker call f.
func (w *worker) do(f func()) { w.poll.post(f) }

// times are when the call began that is under way, 0: none is, and when the last one ended.
func (w *worker) times() (since, answered time.Duration) {
	return time.Duration(w.since.Load()), time.Duration(w.answered.Load())
}

// close ends the worker when it has done what was asked for, and reports whether it ended
// within the patience.
func (w *worker) close(patience time.Duration) bool {
	w.do(func() { w.ending = true })
	select {
	case <-w.ended:
		w.poll.close()
		return true
	case <-time.After(patience): // the kernel keeps it
		return false
	}
}
