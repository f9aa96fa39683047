// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLossByCause(t *testing.T) {
	const n = 60
	for _, tc := range []struct {
		name   string
		target func(t *testing.T) netip.AddrPort
		want   Loss
	}{
		{"refused", closedPort, Loss{Refused: n}},
		{"reset", answering(func(_ int, c *net.TCPConn) { c.SetLinger(0) }), Loss{Reset: n}},
		{"reset in the reply", answering(func(_ int, c *net.TCPConn) {
			c.Write([]byte(page[:len(page)-1]))
			time.Sleep(5 * time.Millisecond) // else the RST overtakes the bytes
			c.SetLinger(0)
		}), Loss{Reset: n}},
		{"no answer", answering(silent), Loss{Timeout: n}},
		{"half an answer", answering(func(i int, c *net.TCPConn) {
			c.Write([]byte(page[:20]))
			silent(i, c)
		}), Loss{Timeout: n}},
		{"closed without a word", answering(always("")), Loss{Truncated: n}},
		{"short reply", answering(always(page[:len(page)-1])), Loss{Truncated: n}},
		{"not HTTP", answering(always("220 mail ESMTP\r\n")), Loss{Malformed: n}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := Plan{Target: tc.target(t), Rate: 600, Connections: n}
			if tc.want.Timeout > 0 {
				p.Timeout, p.Grace = 400*time.Millisecond, time.Minute
			}
			r := mustRun(t, p)
			if r.Loss != tc.want || r.Issued != n || r.Replies != 0 {
				t.Errorf("loss %+v, want %+v", r.Loss, tc.want)
			}
		})
	}
}

func answering(answer func(int, *net.TCPConn)) func(*testing.T) netip.AddrPort {
	return func(t *testing.T) netip.AddrPort { return serve(t, "127.0.0.1:0", answer) }
}

// A listener whose queue is full drops SYNs: those connections never get
// through the handshake.
func TestDroppedSYNs(t *testing.T) {
	t.Parallel()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	target := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
	const n = 40
	r := mustRun(t, Plan{Target: target, Rate: 400, Connections: n, Timeout: 300 * time.Millisecond, Grace: time.Minute})
	if r.Loss.Timeout != n || r.Loss.TimeoutConnecting < n-3 || r.Loss.TimeoutConnecting > n-1 {
		t.Errorf("loss %+v, want %d timeouts, nearly all connecting", r.Loss, n)
	}
}

// What this machine cannot do is the client's loss, not the cluster's, and
// makes the generator responsible for the rate.
func TestForeignSource(t *testing.T) {
	t.Parallel()
	target := serve(t, "127.0.0.1:0", always(page))
	r := mustRun(t, Plan{Target: target, Rate: 500, Connections: 50,
		Clients: []Client{{}, {Sources: []netip.Addr{netip.MustParseAddr("192.0.2.77")}}}})
	if r.Loss != (Loss{Client: ClientLoss{Addresses: 25}}) || r.Issued != 25 || r.Replies != 25 {
		t.Errorf("%d issued, %d replies, loss %+v", r.Issued, r.Replies, r.Loss)
	}
	if !r.Generator.Behind || !strings.Contains(r.Generator.Reason, "source addresses (25 connections") {
		t.Errorf("behind %v: %s", r.Generator.Behind, r.Generator.Reason)
	}
}
