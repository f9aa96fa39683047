// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// fetch downloads the file once over a connection of its own: into h, or if
// there is none, to be measured.
func fetch(ctx context.Context, from *host.Namespace, target string, h hash.Hash, megabytes int) (time.Duration, error) {
	var conn net.Conn
	start := time.Now()
	err := from.Do(func() (err error) {
		conn, err = (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", target)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.SetDeadline(start.Add(time.Minute)); err != nil {
		return 0, err
	}
	err = download(conn.(*net.TCPConn), h, int64(megabytes)*1e6)
	return time.Since(start), err
}

// download asks for the file, which has so many bytes, and takes all of it.
func download(conn *net.TCPConn, h hash.Hash, size int64) error {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: bulk\r\nConnection: close\r\n\r\n", bulkPath); err != nil {
		return err
	}
	reader := bufio.NewReader(conn)
	reply, err := http.ReadResponse(reader, nil)
	if err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK || reply.ContentLength != size {
		return fmt.Errorf("status %d with %d bytes, want 200 with %d", reply.StatusCode, reply.ContentLength, size)
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
		err = fmt.Errorf("%w: %d bytes of %d", io.ErrUnexpectedEOF, n, size)
	}
	return err
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
