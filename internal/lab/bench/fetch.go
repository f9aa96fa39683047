// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// fetch downloads the file once over a connection of its own: into h, or if
// there is none, to be measured.
func fetch(ctx context.Context, from *host.Namespace, target string, h hash.Hash, megabytes int) (took time.Duration, err error) {
	err = dial(ctx, from, target, func(conn *net.TCPConn, start time.Time) error {
		err := download(conn, h, int64(megabytes)*1e6)
		took = time.Since(start)
		return err
	})
	return took, err
}

// fetchFor downloads the file for a time, over a connection of its own.
func fetchFor(ctx context.Context, from *host.Namespace, target string, megabytes int, warm, length time.Duration) (n int64, took time.Duration, err error) {
	err = dial(ctx, from, target, func(conn *net.TCPConn, _ time.Time) (err error) {
		n, took, err = downloadFor(conn, int64(megabytes)*1e6, warm, length)
		return err
	})
	return n, took, err
}

// downloadFor asks for the file and discards it for a warm-up and the time
// given. It returns how many bytes came in how long after the warm-up; if all
// of it came sooner, all of it.
func downloadFor(conn *net.TCPConn, size int64, warm, length time.Duration) (n int64, took time.Duration, err error) {
	start := time.Now()
	reader, err := ask(conn, size)
	if err != nil {
		return 0, 0, err
	}
	left := size - int64(reader.Buffered())
	if n, err = discardUntil(conn, left, start.Add(warm)); err != nil {
		return 0, 0, err
	}
	if left -= n; left == 0 {
		return size, time.Since(start), nil
	}
	begin := time.Now()
	n, err = discardUntil(conn, left, begin.Add(length))
	return n, time.Since(begin), err
}

// discardUntil discards what comes of n bytes until a time.
func discardUntil(conn *net.TCPConn, n int64, end time.Time) (int64, error) {
	if err := conn.SetDeadline(end); err != nil {
		return 0, err
	}
	got, err := discard(conn, n)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return got, nil
	}
	if err == nil && got != n {
		err = short(got, n)
	}
	return got, err
}

// dial connects, and lets fn use the connection.
func dial(ctx context.Context, from *host.Namespace, target string, fn func(conn *net.TCPConn, start time.Time) error) error {
	var conn net.Conn
	start := time.Now()
	err := from.Do(func() (err error) {
		conn, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", target)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(start.Add(time.Minute)); err != nil {
		return err
	}
	return fn(conn.(*net.TCPConn), start)
}

// download asks for the file, which has so many bytes, and takes all of it.
func download(conn *net.TCPConn, h hash.Hash, size int64) error {
	reader, err := ask(conn, size)
	if err != nil {
		return err
	}
	n := int64(reader.Buffered())
	if h == nil {
		var discarded int64
		discarded, err = discard(conn, size-n)
		n += discarded
	} else {
		n, err = io.CopyBuffer(h, io.LimitReader(reader, size), make([]byte, 1<<18))
	}
	if err == nil && n != size {
		err = short(n, size)
	}
	return err
}

// short is the error of a download that ended early.
func short(n, size int64) error {
	return fmt.Errorf("%w: %d bytes of %d", io.ErrUnexpectedEOF, n, size)
}

// ask sends the request and reads the head of the reply; what comes then is
// the file, of which some may be in the reader.
func ask(conn *net.TCPConn, size int64) (*bufio.Reader, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: bulk\r\nConnection: close\r\n\r\n", bulkPath); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	reply, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK || reply.ContentLength != size {
		return nil, fmt.Errorf("status %d with %d bytes, want 200 with %d", reply.StatusCode, reply.ContentLength, size)
	}
	return reader, nil
}

// discard receives up to n bytes, fewer if there come no more, and lets the
// kernel throw them away (MSG_TRUNC, tcp(7)). To copy them would take a client
// so long that it hid what the way costs.
func discard(conn *net.TCPConn, n int64) (received int64, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	piece := make([]byte, 1<<20) // a size; nobody writes to it
	var failed error
	// The function says whether it is done; if not, it is called again when
	// there is more to receive, or not at all after the deadline.
	err = raw.Read(func(fd uintptr) bool {
		for received < n {
			var m int
			m, _, failed = unix.Recvfrom(int(fd), piece[:min(n-received, int64(len(piece)))], unix.MSG_TRUNC)
			switch {
			case failed == unix.EAGAIN:
				return false
			case failed == unix.EINTR:
			case failed != nil || m == 0:
				return true
			default:
				received += int64(m)
			}
		}
		return true
	})
	if err == nil && failed != nil {
		err = &net.OpError{Op: "read", Net: "tcp", Addr: conn.RemoteAddr(), Err: failed}
	}
	return received, err
}
