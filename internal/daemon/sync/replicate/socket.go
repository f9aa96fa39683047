// SPDX-License-Identifier: Apache-2.0

package replicate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	// socketBuffer is room for what comes while changes are applied [bytes].
	socketBuffer = 8 << 20
	readBatch    = 64 // datagrams
	headers4     = 20 + 8
	headers6     = 40 + 8
)

// socket is that of a role.
type socket struct {
	conn   *net.UDPConn
	packet interface {
		ReadBatch(ms []ipv4.Message, flags int) (int, error)
		WriteBatch(ms []ipv4.Message, flags int) (int, error)
	}
	out []ipv4.Message
	max int // payload of a datagram [bytes]
}

// openSocket opens it in the calling thread's network namespace.
func openSocket(c *Config) (*socket, error) {
	control := func(_, _ string, raw syscall.RawConn) (err error) {
		if e := raw.Control(func(fd uintptr) { err = setOptions(int(fd), c) }); e != nil {
			return e
		}
		return err
	}
	bind := c.Listen
	multicast := c.To[0].Addr().IsMulticast()
	if multicast { // what the group gets, too
		bind = netip.AddrPortFrom(netip.IPv4Unspecified(), bind.Port())
		if c.Listen.Addr().Is6() {
			bind = netip.AddrPortFrom(netip.IPv6Unspecified(), bind.Port())
		}
	}
	lc := net.ListenConfig{Control: control}
	network := "udp4"
	if c.Listen.Addr().Is6() {
		network = "udp6"
	}
	conn, err := lc.ListenPacket(context.Background(), network, bind.String())
	if err != nil {
		return nil, fmt.Errorf("replication: %s: %w%s", c.Listen, err, bindHint(c, err))
	}
	s := &socket{conn: conn.(*net.UDPConn)}
	mtu := routeMTU(c)
	var ifi *net.Interface
	if c.Interface != "" {
		if ifi, err = net.InterfaceByName(c.Interface); err != nil {
			s.conn.Close()
			return nil, fmt.Errorf("replication: interface %s: %w", c.Interface, err)
		}
		mtu = ifi.MTU
	}
	if c.Listen.Addr().Is4() {
		p := ipv4.NewPacketConn(conn)
		s.packet, s.max = p, mtu-headers4
		if multicast {
			err = joinAll(p.JoinGroup(ifi, &net.UDPAddr{IP: c.To[0].Addr().AsSlice()}), p.SetMulticastInterface(ifi), p.SetMulticastLoopback(false))
		}
	} else {
		p := ipv6.NewPacketConn(conn)
		s.packet, s.max = p, mtu-headers6
		if multicast {
			err = joinAll(p.JoinGroup(ifi, &net.UDPAddr{IP: c.To[0].Addr().AsSlice()}), p.SetMulticastInterface(ifi), p.SetMulticastLoopback(false))
		}
	}
	if err != nil {
		s.conn.Close()
		return nil, fmt.Errorf("replication: interface %s: group %s: %w", c.Interface, c.To[0], err)
	}
	return s, nil
}

// bindHint says what to do about a socket that cannot be opened.
func bindHint(c *Config, err error) string {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Sprintf(" (ss -ulnp 'sport = :%d' shows the process that has it)", c.Listen.Port())
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return " (it is no address of this machine: ip address shows those)"
	case errors.Is(err, unix.ENODEV):
		return " (ip link shows the devices)"
	}
	return ""
}

// isBound reports whether the interface that the socket is bound to is still there: it
// neither sends nor receives otherwise, also if there is another one of its name.
func (s *socket) isBound() bool {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return false
	}
	bound := true
	err = raw.Control(func(fd uintptr) {
		_, err := unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
		bound = !errors.Is(err, unix.ENODEV)
	})
	return err == nil && bound
}

func joinAll(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func setOptions(fd int, c *Config) error {
	// More than net.core.rmem_max, for which the role has the right.
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, socketBuffer); err != nil {
			return fmt.Errorf("set the socket's buffer: %w", err)
		}
	}
	if c.Interface != "" {
		if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, c.Interface); err != nil {
			return fmt.Errorf("bind to interface %s: %w", c.Interface, err)
		}
	}
	return nil
}
