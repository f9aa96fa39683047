// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dial connects to a daemon's socket, and writes the beginning of a request.
func dial(t *testing.T, path, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	// Where there is no room for it, it may be closed before.
	if _, err := io.WriteString(c, text); err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
	return c
}

// isOpen reports whether the daemon has not closed a connection.
func isOpen(t *testing.T, c net.Conn) bool {
	t.Helper()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	open := false
	// Without waiting: hundreds of waits would take longer than the daemon waits for a request.
	_ = raw.Read(func(fd uintptr) bool {
		buffer := make([]byte, 64<<10)
		for n := 1; n > 0; {
			n, err = syscall.Read(int(fd), buffer)
		}
		open = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return open
}

// median is that of the times of several calls for the status, each on a connection of its own, none
// of which may fail.
func median(t *testing.T, path string) time.Duration {
	t.Helper()
	var times []time.Duration
	for range 20 {
		start := time.Now()
		if _, err := At(path).Status(t.Context()); err != nil {
			t.Fatalf("after %s: %v", time.Since(start), err)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// awaitClients returns when every connection waits for its client. Of those that were opened a moment
// ago, whose bodies may still arrive, none is closed for another one, which is refused.
func awaitClients(t *testing.T, f *fake, path string) {
	t.Helper()
	_, _ = At(path).Status(t.Context()) // is accepted after them
	for ; ; time.Sleep(time.Millisecond) {
		waiting := true
		f.at.clients.mu.Lock()
		for c := range f.at.clients.open {
			waiting = waiting && (c.refused != nil || c.waiting(time.Now()))
		}
		f.at.clients.mu.Unlock()
		if waiting {
			return
		}
	}
}

// Connections of root that wait for their client delay no command of root: the oldest are closed.
func TestWaitingConnectionsOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	const status = "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, text := range map[string]string{
		"nothing sent":     "",
		"half a head":      "GET /v1/status HTTP/1.1\r\nHost: x\r\n",
		"half a body":      "POST /v1/order HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
		"an unread body":   "GET /v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"an unknown path":  "POST /v1/none HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n",
		"no JSON":          "POST /v1/order HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx",
		"a large body":     "POST /v1/order HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", maxRequest+1),
		"a reply, and on":  status,
		"reply not read":   strings.Repeat(status, 1000),
		"half of the next": status + "GET /v1/st",
	} {
		t.Run(name, func(t *testing.T) {
			f, path := start(t)
			before := median(t, path)
			var held []net.Conn
			for range 200 {
				held = append(held, dial(t, path, text))
			}
			awaitClients(t, f, path)
			after := median(t, path)
			t.Logf("median %s, with 200 connections %s", before, after)
			// Before, these waited until the daemon had given the others up, for 5 s.
			if after > time.Second+10*before {
				t.Errorf("median %s, with 200 connections %s", before, after)
			}
			// Not more are closed than have to be.
			open := 0
			for _, c := range held {
				if isOpen(t, c) {
					open++
				}
			}
			if open < maxConnections[ofRoot].each/2 {
				t.Errorf("%d of the connections are open", open)
			}
			if name == "nothing sent" && (isOpen(t, held[0]) || !isOpen(t, held[199])) {
				t.Error("not the oldest are closed")
			}
		})
	}
}

// Connections that wait for the daemon are not closed for another one, which is refused.
func TestBusyConnectionsOfRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	f, path := start(t)
	f.work = time.Minute
	var held []net.Conn
	for range maxConnections[ofRoot].each {
		held = append(held, dial(t, path, "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"))
	}
	for busy := 0; busy < len(held); time.Sleep(time.Millisecond) {
		busy = 0
		f.at.clients.mu.Lock()
		for c := range f.at.clients.open {
			if c.state == forDaemon {
				busy++
			}
		}
		f.at.clients.mu.Unlock()
	}
	if _, err := At(path).Status(t.Context()); err == nil || err.Error() != "refused: user root has 128 connections already: end commands that wait or follow" {
		t.Errorf("%v", err)
	}
	for _, c := range held {
		if !isOpen(t, c) {
			t.Fatal("one was closed")
		}
	}
}

// A request that arrives on a connection that is being closed for another one is not carried out.
func TestClosedForAnother(t *testing.T) {
	f, path := start(t)
	c := dial(t, path, "")
	for marked := false; !marked; time.Sleep(time.Millisecond) {
		f.at.clients.mu.Lock()
		for one := range f.at.clients.open {
			one.closed, marked = true, true
		}
		f.at.clients.mu.Unlock()
	}
	if _, err := io.WriteString(c, "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); err != nil || len(text) > 0 || len(f.asked) > 0 {
		t.Errorf("%s, %v, asked %q", text, err, f.asked)
	}
}

// A request whose end has not arrived when its connection is closed for another one is not carried out.
func TestClosedWithinBody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	f, path := start(t)
	for range 2 * maxConnections[ofRoot].each {
		dial(t, path, "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{}")
	}
	awaitClients(t, f, path)
	median(t, path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) > 0 {
		t.Errorf("%d requests were carried out", len(f.asked))
	}
}
