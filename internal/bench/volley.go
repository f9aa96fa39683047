// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// volley is frames ready to be sent, again and again: the kernel takes them
// from here as they are.
type volley struct{ headers []mmsghdr }

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	message unix.Msghdr
	_       uint32 // bytes sent
	_       [4]byte
}

// newVolley makes one of n frames.
func newVolley(n int, frame func(i int) []byte) *volley {
	v := &volley{make([]mmsghdr, n)}
	vectors := make([]unix.Iovec, n)
	var room []byte // many frames are one allocation
	for i := range v.headers {
		f := frame(i)
		if cap(room)-len(room) < len(f) {
			room = make([]byte, 0, max(1<<16, len(f)))
		}
		at := len(room)
		room = append(room, f...)
		vectors[i].Base = &room[at]
		vectors[i].SetLen(len(f))
		v.headers[i].message.Iov = &vectors[i]
		v.headers[i].message.SetIovlen(1)
	}
	return v
}

// burst is how many frames one system call sends.
const burst = 64

// send sends n frames out of a packet socket, from the one at a place on and
// beginning anew after the last.
func (v *volley) send(ctx context.Context, socket, at, n int) error {
	for at %= len(v.headers); n > 0; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		some := v.headers[at:min(at+burst, at+n, len(v.headers))]
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(socket), uintptr(unsafe.Pointer(&some[0])), uintptr(len(some)), 0, 0, 0)
		switch {
		case errno == unix.ENOBUFS || errno == unix.EINTR:
			continue // the device's queue is full: the frame has not gone
		case errno != 0:
			return fmt.Errorf("send packets: %w", errno)
		}
		n -= int(sent)
		if at += int(sent); at == len(v.headers) {
			at = 0
		}
	}
	return nil
}

// packetSocket opens a socket that sends whole frames out of a device, past
// its queue, and receives nothing. It is to be called in the device's namespace.
func packetSocket(ns *host.Namespace, dev string) (int, error) {
	index, err := ns.LinkIndex(dev)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index})
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("packet socket on %s: %w", dev, err), unix.Close(fd))
	}
	return fd, nil
}
