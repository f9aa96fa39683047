// SPDX-License-Identifier: Apache-2.0

// Package steer makes the connections of health checks that go the way of the traffic:
// for the virtual address, through the server's tunnel. It binds a socket, has the
// director steer what the socket sends, and connects to the server's own address.
package steer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/check"
	"imbang/internal/director"
	"imbang/internal/host"
	"imbang/internal/model"
)

// Steering is what the director does (director.Steering).
type Steering interface {
	Begin(director.Steered) error
	Steered(director.Steered) (bool, error)
	End(director.Steered)
}

// Dialer connects to servers. Several goroutines may use it at once.
type Dialer struct {
	steering atomic.Pointer[Steering]
	astray   sync.Map // serverOf -> what is wrong (string): checks that are not steered
}

type serverOf struct {
	service model.ServiceKey
	server  netip.AddrPort
}

// Use has the dialer use a director; another one after an upgrade.
func (d *Dialer) Use(s Steering) { d.steering.Store(&s) }

// Reasons why a check is not steered.
var (
	errNoDirector = errors.New("there is no director")
	errOtherWay   = errors.New("the route to it does not lead out of a device of the director")
)

// To is a function that connects to an address of a server for a virtual address, as
// check.Target has it. Where that is what the traffic does, and where the director has no
// part in it, it connects to the server's own address; to a server that is this host, at the
// virtual address, which its packets keep. If the director does not steer,
// the check is inconclusive: it could find out that only that address answers.
func (d *Dialer) To(k model.ServiceKey, server model.Server, virtual netip.AddrPort) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, remote netip.AddrPort) (net.Conn, error) {
		a := attempt{Steered: director.Steered{Service: k, Server: server, Remote: remote, Virtual: virtual, Until: lifetime(ctx)}}
		if s := d.steering.Load(); s != nil {
			a.steering = *s
		}
		conn, err := a.dial(ctx)
		d.remember(serverOf{k, server.AddrPort()}, a)
		return conn, err
	}
}

func (d *Dialer) remember(s serverOf, a attempt) {
	switch {
	case a.failure != nil:
		d.astray.Store(s, fmt.Sprintf("checks of server %s of service %s are not made: %s", s.server, s.service, a.failure))
	case a.astray:
		d.astray.Store(s, fmt.Sprintf("checks of server %s of service %s go to its own address: %s", s.server, s.service, errOtherWay))
	default:
		d.astray.Delete(s)
	}
}

// Astray lists the checks that were to be steered and are not, and why.
func (d *Dialer) Astray() (list []string) {
	d.astray.Range(func(_, what any) bool {
		list = append(list, what.(string))
		return true
	})
	slices.Sort(list)
	return list
}

// Forget forgets them: there may be other servers now.
func (d *Dialer) Forget() { d.astray.Clear() }

// lifetime is how long a connection lives: until the context ends, and a moment.
func lifetime(ctx context.Context) time.Duration {
	const moment = time.Second
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline) + moment
	}
	return time.Minute
}

// attempt is one connection.
type attempt struct {
	director.Steered
	steering Steering
	begun    bool
	astray   bool  // it went to the server's own address, by a device that is not the director's
	failure  error // why it is inconclusive
}

func (a *attempt) dial(ctx context.Context) (net.Conn, error) {
	if a.steering == nil {
		a.failure = errNoDirector
		return nil, a.inconclusive()
	}
	// A server that is this host gets what is sent to the virtual address by the stack, as a
	// connection of this host does. Without that address, as while VRRP has it elsewhere, there is no
	// such way; then its own address is asked, for a program at all addresses.
	if isOwn(a.Virtual.Addr()) && isOwn(a.Remote.Addr()) {
		return check.Connect(ctx, a.Virtual, nil)
	}
	conn, err := check.Connect(ctx, a.Remote, a.control)
	if a.begun {
		var steered bool
		steered, a.failure = a.steering.Steered(a.Steered)
		if errors.Is(a.failure, director.ErrNotSteered) { // by now
			steered, a.failure = true, nil
		}
		a.astray = !steered && (conn != nil || check.WasReset(err))
	}
	if a.begun && err == nil {
		conn = &steered{conn.(*net.TCPConn), a.Steered, a.steering, atomic.Bool{}}
	} else if a.begun {
		a.steering.End(a.Steered)
	}
	if a.failure == nil {
		return conn, err
	}
	if err == nil {
		_ = conn.Close()
	}
	return nil, a.inconclusive()
}

// isOwn reports whether an address is this host's. If the kernel does not say, the check fails by
// itself.
func isOwn(addr netip.Addr) bool {
	own, err := host.IsOwn(addr)
	return err == nil && own
}

func (a *attempt) inconclusive() error { return fmt.Errorf("%w: %w", check.ErrInconclusive, a.failure) }

// longest is the size of TCP segments, in both directions [bytes]: with the headers of
// each tunnel they fit an MTU of 1400. Requests of checks are short.
const longest = 1220

// control binds a socket, before it connects, and has it steered. A socket that cannot be
// steered does not connect.
func (a *attempt) control(_, _ string, raw syscall.RawConn) error {
	var failure error
	err := raw.Control(func(fd uintptr) {
		if a.Local, failure = bind(int(fd), a.Remote); failure != nil {
			return
		}
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, longest)
	})
	if err = errors.Join(err, failure); err != nil {
		return err
	}
	err = a.steering.Begin(a.Steered)
	switch {
	case errors.Is(err, director.ErrNotSteered): // that address is where the traffic goes
		return nil
	case err != nil:
		a.failure = err
		return err
	}
	a.begun = true
	return nil
}

// bind binds a socket to the address that the kernel would choose for a destination,
// and a free port.
func bind(fd int, remote netip.AddrPort) (netip.AddrPort, error) {
	local, err := host.Source(remote.Addr())
	if err != nil {
		return netip.AddrPort{}, err
	}
	var free unix.Sockaddr = &unix.SockaddrInet6{Addr: local.As16()}
	if local.Is4() {
		free = &unix.SockaddrInet4{Addr: local.As4()}
	}
	if err := unix.Bind(fd, free); err != nil {
		return netip.AddrPort{}, fmt.Errorf("bind to %s: %w", local, err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read a socket's address: %w", err)
	}
	switch a := bound.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(local, uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(local, uint16(a.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("a socket's address is of type %T", bound)
}

// steered is a connection that is steered until it is closed.
type steered struct {
	*net.TCPConn
	flow     director.Steered
	steering Steering
	closed   atomic.Bool
}

// Close ends the connection by a reset: nothing of it may be under way when its packets
// are not steered any more.
func (c *steered) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	_ = c.SetLinger(0)
	err := c.TCPConn.Close()
	c.steering.End(c.flow)
	return err
}
