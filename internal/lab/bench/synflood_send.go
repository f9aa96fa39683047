// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// floodBurst is how many frames one system call sends.
const floodBurst = 128

// floodMessage is struct mmsghdr of sendmmsg(2).
type floodMessage struct {
	header unix.Msghdr
	_      uint32 // bytes sent
	_      [4]byte
}

// floodBatch is the frames of one system call.
type floodBatch struct {
	messages [floodBurst]floodMessage
	vectors  [floodBurst]unix.Iovec
	frames   [floodBurst][]byte
}

func newFloodBatch(m *floodMaker) *floodBatch {
	b := &floodBatch{}
	for i := range b.frames {
		b.frames[i] = slices.Clone(m.frame)
		b.vectors[i].Base = &b.frames[i][0]
		b.vectors[i].SetLen(len(m.frame))
		b.messages[i].header.Iov = &b.vectors[i]
		b.messages[i].header.SetIovlen(1)
	}
	return b
}

// send sends n of them, anew.
func (b *floodBatch) send(fd, n int, m *floodMaker) error {
	for i := range n {
		m.next(b.frames[i])
	}
	for at := 0; at < n; {
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[at])), uintptr(n-at), 0, 0, 0)
		if errno != 0 && errno != unix.ENOBUFS && errno != unix.EINTR {
			return fmt.Errorf("send the flood: %w", errno)
		}
		if errno == 0 {
			at += int(sent)
		}
	}
	return nil
}

// flooded is what a flood was.
type flooded struct {
	packets int
	took    time.Duration
	cpu     time.Duration // of the generator, with what the kernel did to its packets at once
}

func (f flooded) rate() float64 { return float64(f.packets) / f.took.Seconds() }

// sendFlood sends frames at a rate out of a device until the context ends. It has
// a thread of its own, on one CPU.
func sendFlood(ctx context.Context, ns *host.Namespace, dev string, rate, cpu int, m *floodMaker) (f flooded, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and not unlocked: the thread ends with its affinity
		f, err = floodHere(ctx, ns, dev, rate, cpu, m)
	}()
	<-done
	return f, err
}

func floodHere(ctx context.Context, ns *host.Namespace, dev string, rate, cpu int, m *floodMaker) (f flooded, err error) {
	index, err := ns.LinkIndex(dev)
	if err != nil {
		return f, err
	}
	err = ns.Do(func() error {
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("keep the generator on CPU %d: %w", cpu, err)
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index})); err != nil {
			return fmt.Errorf("packet socket on %s: %w", dev, err)
		}
		f, err = paced(ctx, fd, rate, m)
		return err
	})
	return f, err
}

// paced sends at a rate. What could not be sent for a fifth of a second is
// given up: a flood does not catch up.
func paced(ctx context.Context, fd, rate int, m *floodMaker) (f flooded, err error) {
	b := newFloodBatch(m)
	begin, given := time.Now(), 0
	for ctx.Err() == nil {
		due := int(time.Since(begin).Seconds()*float64(rate)) - f.packets - given
		if most := rate / 5; due > most {
			given += due - most
			due = most
		}
		if due < floodBurst/2 {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		n := min(due, floodBurst)
		if err := b.send(fd, n, m); err != nil {
			return f, err
		}
		f.packets += n
	}
	f.took = time.Since(begin)
	var u unix.Rusage
	err = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	f.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return f, err
}
