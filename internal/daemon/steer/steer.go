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
	Steered(director.Steered) bool
	End(director.Steered)
}

// Dialer connects to servers. Several goroutines may use it at once.
type Dialer struct {
	steering atomic.Pointer[Steering]
	astray   sync.Map // serverOf -> why (string): checks that are not steered
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
// check.Target has it. A check that cannot be steered goes to the server's own address.
func (d *Dialer) To(k model.ServiceKey, server, virtual netip.AddrPort) func(context.Context, netip.AddrPort) (net.Conn, error) {
	return func(ctx context.Context, remote netip.AddrPort) (net.Conn, error) {
		a := attempt{Steered: director.Steered{Service: k, Server: server, Remote: remote, Virtual: virtual, Until: lifetime(ctx)}}
		if s := d.steering.Load(); s != nil {
			a.steering = *s
		}
		conn, err := a.dial(ctx)
		if a.failure == nil && conn != nil && !a.steering.Steered(a.Steered) {
			a.failure = errOtherWay
		}
		d.remember(serverOf{k, server}, a.failure)
		return conn, err
	}
}

func (d *Dialer) remember(s serverOf, failure error) {
	if failure == nil {
		d.astray.Delete(s)
		return
	}
	d.astray.Store(s, failure.Error())
}

// Astray lists the checks that went to servers' own addresses though they were to be
// steered, and why.
func (d *Dialer) Astray() (list []string) {
	d.astray.Range(func(key, why any) bool {
		s := key.(serverOf)
		list = append(list, fmt.Sprintf("checks of server %s of service %s go to its own address: %s", s.server, s.service, why))
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
	failure  error // why it is not steered
}

func (a *attempt) dial(ctx context.Context) (net.Conn, error) {
	if a.steering == nil {
		a.failure = errNoDirector
	}
	dialer := check.Dialer
	dialer.Control = a.control
	// DialTCP binds the socket itself, also to no address, and it is bound already.
	conn, err := dialer.DialContext(ctx, "tcp", a.Remote.String())
	switch {
	case err != nil && a.begun:
		a.steering.End(a.Steered)
		return nil, err
	case err != nil:
		return nil, err
	case !a.begun:
		return conn, nil
	}
	return &steered{conn.(*net.TCPConn), a.Steered, a.steering, atomic.Bool{}}, nil
}

// longest is the size of TCP segments, in both directions [bytes]: with the headers of
// each tunnel they fit an MTU of 1400. Requests of checks are short.
const longest = 1220

// control binds a socket, before it connects, and has it steered.
func (a *attempt) control(_, _ string, raw syscall.RawConn) error {
	if a.failure != nil {
		return nil
	}
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
	if a.failure = a.steering.Begin(a.Steered); a.failure == nil {
		a.begun = true
	}
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
