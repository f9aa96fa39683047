// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// served answers one request with a header and so many bytes of a body, and
// returns a connection to itself. It hangs up, if told to.
func served(t *testing.T, header string, body []byte, hangUp bool) *net.TCPConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = c.Write(append([]byte(header), body...)) // the client says what it got
		if !hangUp {
			_, _ = io.Copy(io.Discard, c) // until the client does
		}
		c.Close()
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func replyHeader(status, length int) string {
	return fmt.Sprintf("HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n", status, length)
}

// A download is whole or a mistake, whether it is kept or thrown away.
func TestDownload(t *testing.T) {
	const size = 3<<20 + 7
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i * 31 >> 3)
	}
	sums := []func() hash.Hash{func() hash.Hash { return nil }, sha256.New}
	for _, c := range []struct {
		name, header string
		body         []byte
		want         string
	}{
		{"whole", replyHeader(200, size), body, ""},
		{"ends early", replyHeader(200, size), body[:size-1], fmt.Sprintf("unexpected EOF: %d bytes of %d", size-1, size)},
		{"ends with its header", replyHeader(200, size), nil, fmt.Sprintf("unexpected EOF: 0 bytes of %d", size)},
		{"of another length", replyHeader(200, size-1), body[:size-1], fmt.Sprintf("status 200 with %d bytes", size-1)},
		{"no such file", replyHeader(404, size), body, "status 404"},
		{"of no stated length", "HTTP/1.1 200 OK\r\n\r\n", body, "status 200 with -1 bytes"},
		{"no reply", "", nil, "unexpected EOF"},
	} {
		for i, sum := range sums {
			h := sum()
			err := download(served(t, c.header, c.body, true), h, size)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s (%d): %v, want %q", c.name, i, err, c.want)
			}
			if h != nil && c.want == "" && [32]byte(h.Sum(nil)) != sha256.Sum256(body) {
				t.Errorf("%s: other bytes than were sent", c.name)
			}
		}
	}
}

// Who throws away waits for a server that falls silent until the deadline, and
// stops when the connection is closed.
func TestDownloadStops(t *testing.T) {
	silent := func() *net.TCPConn { return served(t, replyHeader(200, 1000), make([]byte, 10), false) }
	c := silent()
	if err := c.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := download(c, nil, 1000); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silent until the deadline: %v", err)
	}
	c = silent()
	time.AfterFunc(50*time.Millisecond, func() { c.Close() })
	if err := download(c, nil, 1000); !errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("closed: %v", err)
	}
}

// A download for a time counts what comes after the warm-up, or if the file is
// shorter than that, all of it. One that ends early is a mistake.
func TestDownloadFor(t *testing.T) {
	const size, warm, length = 1 << 20, 50 * time.Millisecond, 60 * time.Millisecond
	half := make([]byte, size/2)
	if n, took, err := downloadFor(served(t, replyHeader(200, size), make([]byte, size), false), size, time.Minute, length); err != nil || n != size || took <= 0 {
		t.Errorf("a short one: %d bytes in %s, %v", n, took, err)
	}
	n, took, err := downloadFor(served(t, replyHeader(200, size), half, false), size, warm, length)
	if err != nil || n == size || n > int64(len(half)) || took < length {
		t.Errorf("half of it: %d bytes in %s, %v", n, took, err)
	}
	if _, _, err := downloadFor(served(t, replyHeader(200, size), half, true), size, time.Minute, length); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ends early: %v", err)
	}
}
