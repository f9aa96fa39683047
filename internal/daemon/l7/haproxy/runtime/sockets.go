// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// getSockets is what one HAProxy asks another one at its runtime socket for its listening sockets
// (option -x; the socket is rendered with expose-fd listeners). The reply is their number, an int, and
// then messages with batch descriptors at most and as many records: a byte and a network namespace, a
// byte and a device, and an unused int. Each message is answered by the number that arrived so far.
const (
	getSockets = "_getsocks\n"
	batch      = 252
	recordSize = 1 + 255 + 1 + 255 + 4 // at most
	intSize    = 4
	// socketsLimit is far above what a configuration has.
	socketsLimit = 100_000
)

// Sockets are listening sockets, open also when HAProxy has ended: the kernel then goes on to accept
// connections, for the next HAProxy.
type Sockets struct{ all []socket }

type socket struct {
	fd     int
	record []byte
}

// Sockets are those of a worker that accept connections of TCP.
func (c *Client) Sockets(ctx context.Context) (s *Sockets, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNotRunning
	case err != nil:
		return nil, fmt.Errorf("HAProxy's socket: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write([]byte(getSockets)); err != nil {
		return nil, fmt.Errorf("HAProxy's socket: %w", err)
	}
	s = &Sockets{}
	if err := s.receive(conn.(*net.UnixConn)); err != nil {
		s.Close()
		return nil, fmt.Errorf("listening sockets of HAProxy: %w", failure(ctx, err))
	}
	s.keep(isTCP)
	return s, nil
}

func (s *Sockets) receive(conn *net.UnixConn) error {
	number := make([]byte, intSize)
	if n, _, _, _, err := conn.ReadMsgUnix(number, nil); err != nil || n < intSize {
		return errors.Join(errors.New("no number of them"), err)
	}
	total := int(binary.NativeEndian.Uint32(number))
	if total > socketsLimit {
		return fmt.Errorf("HAProxy replies %q", number)
	}
	text, rights := make([]byte, batch*recordSize), make([]byte, unix.CmsgSpace(batch*intSize))
	for len(s.all) < total {
		n, m, _, _, err := conn.ReadMsgUnix(text, rights)
		if err != nil {
			return err
		}
		before := len(s.all)
		if err := s.add(text[:n], rights[:m]); err != nil {
			return err
		}
		if len(s.all) == before {
			return fmt.Errorf("%d of %d arrived", before, total)
		}
		// After the last one HAProxy does not wait for it.
		_, _ = conn.Write(binary.NativeEndian.AppendUint32(nil, uint32(len(s.all))))
	}
	return nil
}

// add adds those of one message.
func (s *Sockets) add(text, rights []byte) error {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		for _, fd := range fds {
			one := socket{fd: fd}
			one.record, text = cutRecord(text)
			s.all = append(s.all, one) // also without a record, to be closed
			if one.record == nil {
				err = errors.New("a record is cut")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutRecord is the first record, and what follows it; nil: it is not whole.
func cutRecord(text []byte) (record, rest []byte) {
	at := 0
	for range 2 { // texts behind their lengths
		if at >= len(text) {
			return nil, nil
		}
		at += 1 + int(text[at])
	}
	if at += intSize; at > len(text) {
		return nil, nil
	}
	return append([]byte(nil), text[:at]...), text[at:]
}

// keep closes all others.
func (s *Sockets) keep(which func(fd int) bool) {
	var kept []socket
	for _, one := range s.all {
		if which(one.fd) {
			kept = append(kept, one)
		} else {
			unix.Close(one.fd)
		}
	}
	s.all = kept
}

func isTCP(fd int) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return false
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	switch at.(type) {
	case *unix.SockaddrInet4, *unix.SockaddrInet6:
		return true
	}
	return false
}

// Len is how many there are.
func (s *Sockets) Len() int {
	if s == nil {
		return 0
	}
	return len(s.all)
}

// Close closes them: if HAProxy has ended, connections are refused from then on.
func (s *Sockets) Close() {
	if s != nil {
		s.keep(func(int) bool { return false })
	}
}

// HandOver gives them to a HAProxy that has connected (option -x).
func (s *Sockets) HandOver(conn *net.UnixConn) error {
	asked := make([]byte, len(getSockets))
	if n, err := conn.Read(asked); err != nil || string(asked[:n]) != getSockets {
		return errors.Join(fmt.Errorf("listening sockets: HAProxy asks %q", asked), err)
	}
	if _, err := conn.Write(binary.NativeEndian.AppendUint32(nil, uint32(s.Len()))); err != nil {
		return fmt.Errorf("listening sockets: %w", err)
	}
	for at := 0; at < s.Len(); at += batch {
		var text []byte
		var fds []int
		for _, one := range s.all[at:min(at+batch, len(s.all))] {
			text, fds = append(text, one.record...), append(fds, one.fd)
		}
		if _, _, err := conn.WriteMsgUnix(text, unix.UnixRights(fds...), nil); err != nil {
			return fmt.Errorf("listening sockets: %w", err)
		}
		if _, err := conn.Read(make([]byte, intSize)); err != nil {
			return fmt.Errorf("listening sockets: %w", err)
		}
	}
	return nil
}
