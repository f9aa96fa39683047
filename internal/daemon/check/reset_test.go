// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/testenv"
)

// resetting accepts connections, writes a greeting and resets them.
func resetting(t *testing.T) netip.AddrPort {
	t.Helper()
	return netip.MustParseAddrPort(listen(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 ready\r\n")
		_ = c.(*net.TCPConn).SetLinger(0)
	}))
}

// afterReset connects as checks do, but the program is late: before it looks at the result of
// connect(2) the server has reset the connection. The second connect(2) discards a greeting.
func afterReset(t *testing.T) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		return Connect(ctx, at, func(_, _ string, raw syscall.RawConn) (err error) {
			return errors.Join(raw.Control(func(fd uintptr) {
				err = unix.Connect(int(fd), &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
				if err == nil || errors.Is(err, unix.EINPROGRESS) {
					err = awaitError(int(fd))
				}
			}), err)
		})
	}
}

// awaitError waits until a socket has an error, which it leaves there.
func awaitError(fd int) error {
	events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLERR}}
	for range 3000 {
		if n, err := unix.Poll(events, 10); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return errors.New("the server does not reset the connection")
}

// A server that resets a connection had accepted it: its port is open.
func TestResetAfterHandshake(t *testing.T) {
	server := resetting(t)
	closing := netip.MustParseAddrPort(listen(t, func(c net.Conn) { // a reset after a FIN is EPIPE
		_, _ = io.WriteString(c, "220 ready\r\n")
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.(*net.TCPConn).SetLinger(0)
	}))
	for _, c := range []struct {
		name   string
		target Target
		spec   Spec
		ok     bool
		detail string
	}{
		{"connect", Target{Addr: server}, &TCP{}, true, "connected in "},
		{"connect, PROXY header", Target{Addr: server, Proxy: 2}, &TCP{}, true, "connected in "},
		{"connect, closed before", Target{Addr: closing}, &TCP{}, true, "connected in "},
		{"refused", Target{Addr: netip.MustParseAddrPort("127.0.0.1:1")}, &TCP{}, false, "connection refused"},
	} {
		c.target.Dial = afterReset(t)
		checker, err := c.spec.Checker()
		if err != nil {
			t.Fatal(err)
		}
		expect(t, c.name, checker.Check(t.Context(), c.target), c.ok, c.detail)
	}
}

// The same by the scheduling of this machine: the reset arrives before or after the look.
func TestResetAtAnyTime(t *testing.T) {
	t.Run("connect", func(t *testing.T) { checkOften(t, tcpChecker{}, resetting(t)) })
	t.Run("greeting", func(t *testing.T) { checkOften(t, tcpChecker{expect: regexp.MustCompile("^220 ")}, resetting(t)) })
	t.Run("agent", func(t *testing.T) {
		checkOften(t, Agent{}, netip.MustParseAddrPort(listen(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "up 50%\n")
			_ = c.(*net.TCPConn).SetLinger(0)
		})))
	})
}

func checkOften(t *testing.T, checker Checker, server netip.AddrPort) {
	t.Helper()
	const checks, workers = 2000, 16
	failures := make(chan Result, checks)
	done := make(chan struct{})
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for range checks / workers {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				if r := checker.Check(ctx, Target{Addr: server}); !r.OK {
					failures <- r
				}
				cancel()
			}
		}()
	}
	for range workers {
		<-done
	}
	if n := len(failures); n > 0 {
		t.Errorf("%d of %d checks failed: %+v", n, checks, <-failures)
	}
}

// While this machine has no local ports left, the net package tries again, and no descriptor stays open.
func TestNoLocalPorts(t *testing.T) {
	ns := testenv.Namespace(t, "ports")
	if err := ns.Up("lo"); err != nil {
		t.Fatal(err)
	}
	descriptors := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	var before, after int
	var last Result
	err := ns.Do(func() error {
		const server = "127.0.0.1:5000"
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40001"), 0o600); err != nil {
			return err
		}
		l, err := net.Listen("tcp", server)
		if err != nil {
			return err
		}
		defer l.Close()
		for {
			c, err := net.Dial("tcp", server)
			if errors.Is(err, syscall.EADDRNOTAVAIL) {
				break
			}
			if err != nil {
				return err
			}
			defer c.Close()
		}
		before = descriptors()
		for range 20 {
			last = runWithin(t, ample, &TCP{Expect: "220 "}, server)
		}
		after = descriptors()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if expect(t, "no ports", last, false, "cannot assign requested address"); !last.Inconclusive || after > before {
		t.Errorf("%+v, %d descriptors, before %d", last, after, before)
	}
}
