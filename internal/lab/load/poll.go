// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is taken from epoll at once. It is small so that handling a
// burst of replies cannot delay arrivals by more than some 100 us.
const maxEvents = 16

// poller is one epoll set with sub-millisecond waits.
type poller struct {
	fd     int
	events [maxEvents]unix.EpollEvent
	// coarse is set when the kernel lacks epoll_pwait2 (before 5.11): the
	// last millisecond of a wait is then spent polling.
	coarse bool
}

// Event masks, edge-triggered: each change is reported once, and no call is
// needed to change or drop interest. A connection whose request is already
// out has no use for EPOLLOUT, which would fire at once.
const (
	forReply  = unix.EPOLLET | unix.EPOLLIN | unix.EPOLLRDHUP
	forAnyEnd = forReply | unix.EPOLLOUT
)

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { unix.Close(p.fd) }

// add registers fd; events carry id back.
func (p *poller) add(fd, id int32, mask uint32) unix.Errno {
	ev := unix.EpollEvent{Events: mask, Fd: id}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), unix.EPOLL_CTL_ADD, uintptr(fd),
		uintptr(unsafe.Pointer(&ev)), 0, 0)
	return e
}

// wait returns the events that are ready, waiting up to d for the first. It
// may return early without any.
func (p *poller) wait(d time.Duration) ([]unix.EpollEvent, error) {
	n, e := p.enter(d)
	switch e {
	case 0:
		return p.events[:n], nil
	case unix.EINTR:
		return nil, nil
	case unix.ENOSYS:
		if !p.coarse {
			p.coarse = true
			return p.wait(d)
		}
	}
	return nil, fmt.Errorf("epoll wait: %w", e)
}

// enter makes the call, which may block, without telling the Go scheduler.
// Told, it would take the thread's processor away after some 20 us, look every
// 20 us whether there is another to take, and give it back on return: that
// costs the process 5 to 25 us of CPU time a connection, in threads that
// Generator.CPUSeconds does not see. What needs the thread to stop, such as
// garbage collection, interrupts the call by a signal.
func (p *poller) enter(d time.Duration) (int, unix.Errno) {
	if d <= 0 || p.coarse {
		// Whole milliseconds; less is polled.
		n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)),
			maxEvents, uintptr(max(d, 0)/time.Millisecond), 0, 0)
		return int(n), e
	}
	ts := unix.NsecToTimespec(int64(d))
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events)),
		maxEvents, uintptr(unsafe.Pointer(&ts)), 0, 0)
	return int(n), e
}
