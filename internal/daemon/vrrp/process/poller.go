// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// poller waits for descriptors, a time, and posted functions.
type poller struct {
	epoll, timer, wake int
	armed              time.Duration
	events             [64]unix.EpollEvent

	mu     sync.Mutex
	posted []func()
	closed bool
}

func newPoller() (*poller, error) {
	p := &poller{epoll: -1, timer: -1, wake: -1}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if p.timer, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		p.close()
		return nil, fmt.Errorf("timer: %w", err)
	}
	if p.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		p.close()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	for _, fd := range []int{p.timer, p.wake} {
		if err := p.add(fd); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *poller) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, fd := range []int{p.epoll, p.timer, p.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// add waits for a descriptor to be readable, until it is closed.
func (p *poller) add(fd int) error {
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// wait returns when a descriptor is readable, a function was posted, or it is time.
func (p *poller) wait(until time.Duration) error {
	if until != p.armed {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(until))}
		if until == 0 {
			spec = unix.ItimerSpec{} // never
		}
		if err := unix.TimerfdSettime(p.timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
			return fmt.Errorf("timer: %w", err)
		}
		p.armed = until
	}
	n, err := unix.EpollWait(p.epoll, p.events[:], -1)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("epoll: %w", err)
	}
	for _, e := range p.events[:max(n, 0)] {
		if fd := int(e.Fd); fd == p.timer || fd == p.wake {
			var b [8]byte
			_, _ = unix.Read(fd, b[:])
			if fd == p.timer {
				p.armed = -1 // it has gone off
			}
		}
	}
	return nil
}

// remove ends add.
func (p *poller) remove(fd int) { _ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) }

// waitPosted waits until a function was posted, and for nothing else, for a time.
func (p *poller) waitPosted(patience time.Duration) {
	fds := []unix.PollFd{{Fd: int32(p.wake), Events: unix.POLLIN}}
	if n, _ := unix.Poll(fds, int(patience.Milliseconds())+1); n > 0 {
		var b [8]byte
		_, _ = unix.Read(p.wake, b[:])
	}
}

// post has the loop call f in its next round; it never does if the loop has ended.
func (p *poller) post(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.posted = append(p.posted, f)
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 1)
	_, _ = unix.Write(p.wake, b[:])
}

// take returns the functions that were posted.
func (p *poller) take() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.posted
	p.posted = nil
	return all
}
