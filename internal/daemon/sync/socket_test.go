// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// option reads a socket's option.
func option(t *testing.T, conn *net.UDPConn, level, name int) (value int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { value, failed = unix.GetsockoptInt(int(fd), level, name) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return value
}

// socketIn opens a socket in a namespace.
func socketIn(t *testing.T, ns *host.Namespace, open func(link) (*net.UDPConn, error)) (conn *net.UDPConn) {
	t.Helper()
	err := ns.Do(func() error {
		l, err := findLink("eth0")
		if err != nil {
			return err
		}
		conn, err = open(l)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Messages come from the interface's address with the TTL that was set, do not come back,
// and may be fragmented; other groups are not received.
func TestSockets(t *testing.T) {
	a, b := twoHosts(t)
	for _, group := range []netip.AddrPort{at("224.0.0.81:8848"), at("[ff02::81]:8848")} {
		t.Run(group.String(), func(t *testing.T) {
			six := group.Addr().Is6()
			send := socketIn(t, a, func(l link) (*net.UDPConn, error) { return sendSocket(l, group, 9, 50000) })
			receive := func(l link) (*net.UDPConn, error) { return receiveSocket(l, group, 60000) }
			other := netip.AddrPortFrom(group.Addr().Next(), group.Port())
			there, here := socketIn(t, b, receive), socketIn(t, a, receive)
			again := socketIn(t, b, receive) // SO_REUSEADDR
			elsewhere := socketIn(t, b, func(l link) (*net.UDPConn, error) { return receiveSocket(l, other, 0) })

			if got := option(t, send, unix.SOL_SOCKET, unix.SO_SNDBUF); got != 100000 {
				t.Errorf("SO_SNDBUF %d", got)
			}
			if got := option(t, there, unix.SOL_SOCKET, unix.SO_RCVBUF); got != 120000 {
				t.Errorf("SO_RCVBUF %d", got)
			}
			if got := option(t, elsewhere, unix.SOL_SOCKET, unix.SO_RCVBUF); got != 2*receiveBuffer {
				t.Errorf("without a size: SO_RCVBUF %d", got)
			}
			discover := option(t, send, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER)
			if six {
				discover = option(t, send, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER)
			}
			if discover != unix.IP_PMTUDISC_DONT {
				t.Errorf("MTU discovery %d", discover)
			}
			if !isBound(send) || !isBound(there) {
				t.Error("a socket is not bound to its interface")
			}

			var err error
			if six {
				err = ipv6.NewPacketConn(there).SetControlMessage(ipv6.FlagHopLimit, true)
			} else {
				err = ipv4.NewPacketConn(there).SetControlMessage(ipv4.FlagTTL, true)
			}
			if err != nil {
				t.Fatal(err)
			}
			// Longer than the MTU.
			if _, err := send.Write(make([]byte, 4000)); err != nil {
				t.Fatal(err)
			}
			buffer, control := make([]byte, 5000), make([]byte, 200)
			there.SetReadDeadline(time.Now().Add(time.Minute))
			n, oob, _, from, err := there.ReadMsgUDPAddrPort(buffer, control)
			if err != nil || n != 4000 {
				t.Fatalf("%d bytes, %v", n, err)
			}
			ttl := 0
			if six {
				var cm ipv6.ControlMessage
				err = cm.Parse(control[:oob])
				ttl = cm.HopLimit
			} else {
				var cm ipv4.ControlMessage
				err = cm.Parse(control[:oob])
				ttl = cm.TTL
			}
			if err != nil || ttl != 9 {
				t.Errorf("TTL %d, %v", ttl, err)
			}
			if six && !from.Addr().IsLinkLocalUnicast() || !six && from.Addr().Unmap() != netip.MustParseAddr("10.7.0.1") {
				t.Errorf("from %s", from)
			}
			if n, err := again.Read(buffer); err != nil || n != 4000 {
				t.Errorf("the second receiver: %d bytes, %v", n, err)
			}
			for name, conn := range map[string]*net.UDPConn{"the sender's host": here, "another group": elsewhere} {
				conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if n, err := conn.Read(buffer); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s gets %d bytes, %v", name, n, err)
				}
			}
		})
	}
}

// Messages that are there are read with one call, cut at the buffer's length; those that
// the socket dropped are counted.
func TestReceiver(t *testing.T) {
	a, b := twoHosts(t)
	group := at("224.0.0.81:8848")
	send := socketIn(t, a, func(l link) (*net.UDPConn, error) { return sendSocket(l, group, 1, 0) })
	there := socketIn(t, b, func(l link) (*net.UDPConn, error) { return receiveSocket(l, group, 60000) })
	in := newReceiver(there, false, 1024)
	write := func(n, size int) {
		t.Helper()
		for i := range n {
			b := make([]byte, size)
			b[0] = byte(i)
			if _, err := send.Write(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(70, 100)
	messages, more, err := in.read(true)
	if err != nil || len(messages) != 64 || !more || messages[63].Buffers[0][0] != 63 || messages[63].N != 100 {
		t.Fatalf("%d messages, more %t, %v", len(messages), more, err)
	}
	if messages, more, err = in.read(false); err != nil || len(messages) != 6 || more {
		t.Fatalf("%d messages, more %t, %v", len(messages), more, err)
	}
	if messages, _, err = in.read(false); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("%d messages, %v", len(messages), err)
	}
	write(1, 1400)
	if messages, _, err = in.read(true); err != nil || messages[0].N != 1024 || in.losses(messages) != 0 {
		t.Fatalf("a long one: %v", err)
	}
	// More than the buffer holds.
	const sent = 500
	write(sent, 1000)
	got, lost := 0, 0
	for got+lost < sent {
		there.SetReadDeadline(time.Now().Add(time.Minute))
		if messages, _, err = in.read(true); err != nil {
			t.Fatalf("%d received, %d lost: %v", got, lost, err)
		}
		got += len(messages)
		lost += in.losses(messages)
		if got > 0 && got+lost < sent {
			write(1, 1000) // what was lost is known with the next one
			got--
		}
	}
	if got+lost != sent || lost == 0 {
		t.Errorf("%d received, %d lost of %d", got, lost, sent)
	}
}

// The error of a port that is taken says how to find the process that has it.
func TestSocketOfAnother(t *testing.T) {
	a, _ := twoHosts(t)
	err := a.Do(func() error {
		l, err := findLink("eth0")
		if err != nil {
			return err
		}
		// Without SO_REUSEADDR it excludes the backup's socket.
		other, err := net.ListenPacket("udp4", "0.0.0.0:8848")
		if err != nil {
			return err
		}
		defer other.Close()
		conn, err := receiveSocket(l, at("224.0.0.81:8848"), 0)
		if err == nil {
			conn.Close()
		}
		return err
	})
	if err == nil || !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "(ss -ulnp 'sport = :8848' shows the process that has it)") {
		t.Error(err)
	}
}

// Errors of an interface recommend no flag: the command may be ipvsadm, imbang sync or
// imbang migrate, whose flags differ.
func TestLinkErrors(t *testing.T) {
	_, err := findLink("nosuch")
	_, err2 := link{name: "d0"}.source()
	for want, err := range map[string]error{"nosuch: no such interface (ip link": err, "d0 has no IPv4 address: add one": err2} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
