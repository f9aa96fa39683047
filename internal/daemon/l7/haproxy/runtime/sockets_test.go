// SPDX-License-Identifier: Apache-2.0

package runtime

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// handOver gives sockets over to a Client, as one HAProxy does to another one.
func handOver(t *testing.T, of *Sockets) (*Sockets, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runtime.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			err = of.HandOver(conn.(*net.UnixConn))
			conn.Close()
		}
		done <- err
	}()
	got, err := (&Client{Path: path}).Sockets(t.Context())
	if failed := <-done; failed != nil {
		t.Errorf("hand over: %v", failed)
	}
	return got, err
}

// descriptor is one of a listener's own, for Sockets to close.
func descriptor(t *testing.T, l interface{ File() (*os.File, error) }) int {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// More sockets than a message has room for arrive, with their records, in order. Those that accept no
// TCP do not, and what was received is closed.
func TestSockets(t *testing.T) {
	const many = batch + 10
	of := &Sockets{}
	var listeners []net.Listener
	for i := range many {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		listeners = append(listeners, l)
		name := fmt.Sprintf("dev%d", i)
		of.all = append(of.all, socket{descriptor(t, l.(*net.TCPListener)), append(append([]byte{0, byte(len(name))}, name...), 0, 0, 0, 0)})
	}
	unixSocket, err := net.Listen("unix", filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer unixSocket.Close()
	of.all = append(of.all, socket{descriptor(t, unixSocket.(*net.UnixListener)), []byte{0, 0, 0, 0, 0, 0}})

	got, err := handOver(t, of)
	if err != nil {
		t.Fatal(err)
	}
	if got.Len() != many {
		t.Fatalf("%d of %d", got.Len(), many)
	}
	for i, one := range got.all {
		if !bytes.Equal(one.record, of.all[i].record) {
			t.Errorf("socket %d has the record %q, want %q", i, one.record, of.all[i].record)
		}
	}
	// It listens after the first one was closed, until the second one is.
	last := listeners[many-1]
	at := last.Addr().String()
	last.Close()
	of.keep(func(int) bool { return false })
	if c, err := net.Dial("tcp", at); err != nil {
		t.Errorf("while it is held: %v", err)
	} else {
		c.Close()
	}
	got.Close()
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Error("it is still open")
	}
}

func TestNoSockets(t *testing.T) {
	if got, err := handOver(t, nil); err != nil || got.Len() != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := (&Client{Path: filepath.Join(t.TempDir(), "x")}).Sockets(t.Context()); err == nil {
		t.Error("without HAProxy")
	}
	for _, bad := range []string{"", "\x03", "\x00\x05eth0", "\x00\x00\x00\x00\x00"} {
		if record, rest := cutRecord([]byte(bad)); record != nil || rest != nil {
			t.Errorf("%q has the record %q, and %q", bad, record, rest)
		}
	}
	// A HAProxy that knows no such command.
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write([]byte("Unknown command"))
			conn.Close()
		}
	}()
	if got, err := (&Client{Path: l.Addr().String()}).Sockets(t.Context()); err == nil {
		t.Errorf("%+v", got)
	}
}
