// SPDX-License-Identifier: Apache-2.0

// Package socket has raw sockets for advertisements of VRRP: one for each device and family,
// for all virtual routers there, by multicast and by unicast. It knows the IP layer only;
// package vrrp has the messages.
package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/daemon/vrrp"
	"imbang/internal/host"
)

const (
	// receiveBuffer has room for some thousand advertisements [bytes]: a process that was
	// stopped for a moment has to find the last one.
	receiveBuffer = 1 << 20
	// class is CS6, of network control (RFC 9568 leaves it open; keepalived has it).
	class = 0xc0
	// atOnce bounds the packets of a call of Receive, so that a flood does not keep the caller
	// from sending.
	atOnce = 256
	// maxPacket is longer than any advertisement, with its IPv4 header.
	maxPacket = 60 + 8 + 4*255 + 1280
)

// Where is what a socket is for.
type Where struct {
	Device string
	Index  int // of the device: one that is made again has another
	IPv6   bool
}

// Socket is a raw socket. Its methods do not block.
type Socket struct {
	Where
	fd      int
	rules   []Rule
	strict  bool
	joined  atomic.Bool
	dropped uint32
	data    []byte
	control []byte
	reading reading
	sending map[netip.Addr][]byte        // control messages by source
	to      map[netip.Addr]unix.Sockaddr // by destination
}

// Rule is what a virtual router receives.
type Rule struct {
	ID    uint8
	Peers []netip.Addr // by unicast; none: by multicast
}

// Open opens a socket in the calling thread's network namespace. It receives nothing before
// Accept.
func Open(w Where) (*Socket, error) {
	family := unix.AF_INET
	if w.IPv6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, vrrp.Protocol)
	if err != nil {
		return nil, fmt.Errorf("VRRP on device %s: %w%s", w.Device, err, remedy(err))
	}
	s := newSocket(w, fd)
	if err := s.setUp(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("VRRP on device %s: %w%s", w.Device, err, remedy(err))
	}
	return s, nil
}

func newSocket(w Where, fd int) *Socket {
	s := &Socket{
		Where: w, fd: fd, data: make([]byte, maxPacket), control: make([]byte, 256),
		sending: map[netip.Addr][]byte{}, to: map[netip.Addr]unix.Sockaddr{},
	}
	s.reading.iov = unix.Iovec{Base: &s.data[0]}
	s.reading.iov.SetLen(len(s.data))
	return s
}

func remedy(err error) string {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return " (run as root: this needs CAP_NET_RAW)"
	}
	return ""
}

// option is an integer option of a socket.
type option struct {
	name              string
	level, key, value int
}

func (s *Socket) setUp() error {
	// First, so that nothing comes in before it is bound and has identifiers.
	if err := s.attach(nil); err != nil {
		return err
	}
	if err := unix.BindToDevice(s.fd, s.Device); err != nil {
		return fmt.Errorf("SO_BINDTODEVICE: %w", err)
	}
	options := []option{
		{"IP_TOS", unix.IPPROTO_IP, unix.IP_TOS, class},
		{"IP_TTL", unix.IPPROTO_IP, unix.IP_TTL, vrrp.HopLimit},
		{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, vrrp.HopLimit},
		{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0},
		{"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0},
	}
	if s.IPv6 {
		options = []option{
			{"IPV6_TCLASS", unix.IPPROTO_IPV6, unix.IPV6_TCLASS, class},
			{"IPV6_UNICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, vrrp.HopLimit},
			{"IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, vrrp.HopLimit},
			{"IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0},
			{"IPV6_MULTICAST_ALL", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0},
			{"IPV6_RECVHOPLIMIT", unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
			{"IPV6_RECVPKTINFO", unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
		}
	}
	options = append(options,
		option{"SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1},
		option{"SO_PRIORITY", unix.SOL_SOCKET, unix.SO_PRIORITY, host.ControlPriority}) // behind IP_TOS, which sets it, too
	for _, o := range options {
		if err := unix.SetsockoptInt(s.fd, o.level, o.key, o.value); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	// Beyond net.core.rmem_max only with CAP_NET_ADMIN.
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return fmt.Errorf("SO_RCVBUF: %w", err)
		}
	}
	return nil
}

// FD is for poll(2).
func (s *Socket) FD() int { return s.fd }

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Accept has the socket receive advertisements of these virtual routers alone.
func (s *Socket) Accept(rules []Rule) error {
	if slices.EqualFunc(rules, s.rules, func(a, b Rule) bool { return a.ID == b.ID && slices.Equal(a.Peers, b.Peers) }) {
		return nil
	}
	if err := s.attach(rules); err != nil {
		return fmt.Errorf("VRRP on device %s: %w", s.Device, err)
	}
	s.rules = slices.Clone(rules)
	return nil
}

// Join joins or leaves the multicast group. It waits for the kernel's RTNL lock, and may run
// beside other methods, except Close.
func (s *Socket) Join(join bool) error {
	if join == s.joined.Load() {
		return nil
	}
	if err := s.member(join); err != nil {
		return fmt.Errorf("VRRP on device %s: multicast group: %w", s.Device, err)
	}
	s.joined.Store(join)
	return nil
}

// Joined reports whether it is in the multicast group.
func (s *Socket) Joined() bool { return s.joined.Load() }

func (s *Socket) member(join bool) error {
	if s.IPv6 {
		key := unix.IPV6_ADD_MEMBERSHIP
		if !join {
			key = unix.IPV6_DROP_MEMBERSHIP
		}
		return unix.SetsockoptIPv6Mreq(s.fd, unix.IPPROTO_IPV6, key, &unix.IPv6Mreq{Multiaddr: vrrp.Group6.As16(), Interface: uint32(s.Index)})
	}
	key := unix.IP_ADD_MEMBERSHIP
	if !join {
		key = unix.IP_DROP_MEMBERSHIP
	}
	return unix.SetsockoptIPMreqn(s.fd, unix.IPPROTO_IP, key, &unix.IPMreqn{Multiaddr: vrrp.Group4.As4(), Ifindex: int32(s.Index)})
}

// Send sends a message. The source has to be an address of this host, the destination one of
// its family.
func (s *Socket) Send(message []byte, source, destination netip.Addr) error {
	control := s.sending[source]
	if control == nil {
		if control = s.from(source); control == nil {
			return fmt.Errorf("from %v by IPv%s", source, map[bool]string{true: "6", false: "4"}[s.IPv6])
		}
		s.sending[source] = control
	}
	to := s.to[destination]
	if to == nil {
		to = s.address(destination)
		s.to[destination] = to
	}
	_, err := unix.SendmsgN(s.fd, message, control, to, unix.MSG_DONTWAIT)
	return err
}

func (s *Socket) address(a netip.Addr) unix.Sockaddr {
	if !s.IPv6 {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	six := &unix.SockaddrInet6{Addr: a.As16()}
	if a.IsMulticast() || a.IsLinkLocalUnicast() {
		six.ZoneId = uint32(s.Index)
	}
	return six
}

// from is the control message that says the source.
func (s *Socket) from(source netip.Addr) []byte {
	switch {
	case s.IPv6 && source.Is6():
		return unix.PktInfo6(&unix.Inet6Pktinfo{Addr: source.As16(), Ifindex: uint32(s.Index)})
	case !s.IPv6 && source.Is4():
		return unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(s.Index), Spec_dst: source.As4()})
	}
	return nil
}

// reading is what recvmsg(2) is called with, again and again: unix.Recvmsg would allocate an
// address for each message.
type reading struct {
	from   unix.RawSockaddrInet6 // of IPv6
	iov    unix.Iovec
	header unix.Msghdr
}

// read reads a message into s.data and its control messages into s.control.
func (s *Socket) read() (n, oobn int, errno syscall.Errno) {
	r := &s.reading
	r.header = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&r.from)), Namelen: unix.SizeofSockaddrInet6, Iov: &r.iov, Iovlen: 1, Control: &s.control[0]}
	r.header.SetControllen(len(s.control))
	got, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&r.header)), unix.MSG_DONTWAIT)
	if errno != 0 {
		return 0, 0, errno
	}
	return int(got), int(r.header.Controllen), 0
}

// Receive calls f for each message that has arrived, and what its IP header says. It
// reports whether it has read all; the error is one of the device, such as that it is gone.
// The message is valid until f returns.
func (s *Socket) Receive(f func(message []byte, p vrrp.Packet)) (all bool, err error) {
	for range atOnce {
		n, oobn, errno := s.read()
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return true, nil
		case errno != 0:
			return true, errno
		}
		p := vrrp.Packet{HopLimit: -1}
		message := s.data[:n]
		s.controls(s.control[:oobn], &p)
		if s.IPv6 {
			p.Source = netip.AddrFrom16(s.reading.from.Addr)
		} else if message = header4(message, &p); message == nil {
			continue
		}
		f(message, p)
	}
	return false, nil
}

// header4 reads an IPv4 header, which the kernel has checked, and returns what is behind it.
func header4(packet []byte, p *vrrp.Packet) []byte {
	if len(packet) < 20 {
		return nil
	}
	length := 4 * int(packet[0]&0xf)
	if length < 20 || length > len(packet) {
		return nil
	}
	p.HopLimit = int(packet[8])
	p.Source, p.Destination = netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
	return packet[length:]
}

// controls reads control messages.
func (s *Socket) controls(b []byte, p *vrrp.Packet) {
	for len(b) >= unix.CmsgLen(0) {
		header, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return
		}
		b = rest
		switch {
		case header.Level == unix.SOL_SOCKET && header.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			s.dropped = binary.NativeEndian.Uint32(data)
		case header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_HOPLIMIT && len(data) >= 4:
			p.HopLimit = int(binary.NativeEndian.Uint32(data))
		case header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_PKTINFO && len(data) >= 16:
			p.Destination = netip.AddrFrom16([16]byte(data[:16]))
		}
	}
}

// Dropped is how many packets the kernel has dropped because the process did not read in
// time, as of the last packet that was read.
func (s *Socket) Dropped() uint32 { return s.dropped }
