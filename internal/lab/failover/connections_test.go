// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// meet is a client's connection with a server that does something with it.
func meet(t *testing.T, server func(*net.TCPConn)) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			server(c.(*net.TCPConn))
			c.Close()
		}
	}()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConnections(t *testing.T) {
	reset := func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)); _ = c.SetLinger(0) }
	three := map[string]chan struct{}{"close": make(chan struct{}, 1), "wrong": make(chan struct{}, 1), "echo": make(chan struct{}, 2)} // have three chunks; an echo has one byte
	back := func(c *net.TCPConn) {
		b := make([]byte, 1)
		n, _ := c.Read(b)
		_, _ = c.Write(b[:n])
		three["echo"] <- struct{}{}
		_, _ = io.Copy(c, c)
	}
	close := func(c *net.TCPConn) {
		b := make([]byte, 3*chunk)
		n, err := io.ReadFull(c, b)
		_, _ = c.Write(b[:n])
		if err == nil {
			three["close"] <- struct{}{}
		}
	}
	silent := func(*net.TCPConn) { <-t.Context().Done() }
	// One byte of the third chunk is another one.
	wrong := func(c *net.TCPConn) {
		b := make([]byte, 3*chunk)
		if _, err := io.ReadFull(c, b); err == nil {
			b[2*chunk+5] ^= 1
			_, _ = c.Write(b)
			three["wrong"] <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
		}
	}
	for _, c := range []struct {
		name   string
		server func(*net.TCPConn)
		stream string // how a long connection ends
		idle   string
	}{
		{"echo", back, "", ""}, {"reset", reset, "reset", "reset"}, {"silent", silent, "timeout", "timeout"},
		{"close", close, "reset", "timeout"}, {"wrong", wrong, "different bytes", "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startStream(meet(t, c.server), 3)
			if full, waits := three[c.name]; waits {
				<-full
			}
			time.Sleep(10 * chunkEvery) // also for chunks after them
			// What comes may come late on a busy machine.
			deadline := func(want string) time.Time {
				if want == "timeout" {
					return time.Now().Add(200 * time.Millisecond)
				}
				return time.Now().Add(time.Minute)
			}
			if err := s.stop(deadline(c.stream)); (err == nil) != (c.stream == "") || err != nil && causeOf(err) != c.stream && !(c.name == "close" && causeOf(err) == "closed") {
				t.Errorf("long: %v", err)
			}
			if c.stream == "" && (s.received < chunk || s.received != s.sent) {
				t.Errorf("%d bytes of %d", s.received, s.sent)
			}
			if err := useIdle(meet(t, c.server), deadline(c.idle)); (err == nil) != (c.idle == "") || err != nil && causeOf(err) != c.idle {
				t.Errorf("idle: %v", err)
			}
		})
	}
}

// toldOfReset is a connection whose writer is told of a reset before the reader, which finds the end of the
// stream then, as on Linux.
type toldOfReset struct {
	net.Conn
	told chan struct{}
}

func (c *toldOfReset) Write([]byte) (int, error) {
	close(c.told)
	return 0, syscall.ECONNRESET
}
func (c *toldOfReset) Read([]byte) (int, error)    { <-c.told; return 0, io.EOF }
func (c *toldOfReset) SetDeadline(time.Time) error { return nil }
func (c *toldOfReset) Close() error                { return nil }

// A reset that only the writer was told of is how the connection ended.
func TestResetThatTheWriterSees(t *testing.T) {
	c := &toldOfReset{told: make(chan struct{})}
	s := startStream(c, 3)
	<-c.told
	if err := s.stop(time.Now().Add(time.Minute)); err == nil || causeOf(err) != "reset" {
		t.Errorf("got %v, want a reset", err)
	}
}

// A server's end leaves no connection.
func TestEcho(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := serveEcho(l)
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := useIdle(c, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	e.close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still there")
	}
}

// A probe counts what is answered, and what is not.
func TestProbe(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := serveEcho(l)
	p := startProbe(5*time.Millisecond, func(timeout time.Duration) (net.Conn, error) {
		return net.DialTimeout("tcp4", l.Addr().String(), timeout)
	})
	begin := time.Now()
	answered := func() int { started, failed := p.since(begin); return started - failed }
	for end := begin.Add(time.Minute); answered() < 10; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d probes are answered", answered())
		}
	}
	closed := time.Now()
	e.close()
	const away = 300 * time.Millisecond
	for {
		time.Sleep(time.Millisecond)
		gap, _ := p.gap(closed, time.Now())
		if _, failed := p.since(closed); failed >= 5 && gap >= away {
			break
		}
		if time.Since(closed) > time.Minute {
			t.Fatalf("a gap of %v", gap)
		}
	}
	p.stop()
	end := time.Now()
	if started, failed := p.since(begin); started < 15 || failed < 5 || failed > started-10 {
		t.Errorf("%d probes, %d failed", started, failed)
	}
	// The last answers may be read late, on a busy machine.
	if gap, since := p.gap(closed, end); gap < away/2 || !since.Add(gap).Equal(end) {
		t.Errorf("a gap of %v from %v on, and the server was away for %v until %v", gap, since, end.Sub(closed), end)
	}
}
