// SPDX-License-Identifier: Apache-2.0

package synchronize

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// link is the interface that messages use.
type link struct {
	name  string
	index int
	mtu   int
	addrs []netip.Addr
}

// findLink reads an interface of the calling thread's network namespace.
func findLink(name string) (link, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return link{}, fmt.Errorf("synchronization's interface %s: no such interface (ip link shows what there is)", name)
	}
	l := link{name: name, index: ifi.Index, mtu: ifi.MTU}
	addrs, err := ifi.Addrs()
	if err != nil {
		return link{}, fmt.Errorf("synchronization's interface %s: read its addresses: %w", name, err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			l.addrs = append(l.addrs, p.Addr())
		}
	}
	return l, nil
}

// source is the address that messages of IPv4 come from: the first one that is not
// link-local, as inet_select_addr chooses by scope.
func (l link) source() (netip.Addr, error) {
	var found netip.Addr
	for _, a := range l.addrs {
		if a.Is4() && (!found.IsValid() || found.IsLinkLocalUnicast() && !a.IsLinkLocalUnicast()) {
			found = a
		}
	}
	if !found.IsValid() {
		return found, fmt.Errorf("synchronization's interface %s has no IPv4 address: add one (ip address add ADDRESS dev %s), or use an IPv6 group, such as ff02::81", l.name, l.name)
	}
	return found, nil
}

// sockaddr is an address for bind and connect on the interface.
func (l link) sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: uint32(l.index)}
}

// options are those of a socket, set one after the other until one fails.
type options struct {
	fd  int
	err error
}

func (o *options) set(name string, level, option, value int) {
	if o.err == nil {
		o.do(name, unix.SetsockoptInt(o.fd, level, option, value))
	}
}

func (o *options) do(name string, err error) {
	if o.err == nil && err != nil {
		o.err = fmt.Errorf("%s: %w", name, err)
	}
}

// openSocket makes a UDP socket and has it set up.
func openSocket(l link, what string, group netip.AddrPort, setUp func(*options)) (*net.UDPConn, error) {
	fail := func(err error) error {
		hint := ""
		if errors.Is(err, unix.EADDRINUSE) {
			hint = fmt.Sprintf(" (ss -ulnp 'sport = :%d' shows the process that has it)", group.Port())
		}
		return fmt.Errorf("synchronization's interface %s: %s %s: %w%s", l.name, what, group, err, hint)
	}
	family := unix.AF_INET
	if group.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fail(err)
	}
	file := os.NewFile(uintptr(fd), "synchronization")
	defer file.Close()
	o := options{fd: fd}
	setUp(&o)
	if o.err != nil {
		return nil, fail(o.err)
	}
	conn, err := net.FilePacketConn(file) // with a descriptor of its own
	if err != nil {
		return nil, fail(err)
	}
	udp, ok := conn.(*net.UDPConn)
	if !ok {
		conn.Close()
		return nil, fail(errors.New("not a UDP socket"))
	}
	return udp, nil
}

// sendSocket is a master's, as make_send_sock sets it up: it sends to the group from the
// interface's address, does not get its own messages, and lets routers fragment.
func sendSocket(l link, group netip.AddrPort, ttl uint8, size int) (*net.UDPConn, error) {
	var source netip.Addr
	if group.Addr().Is4() {
		var err error
		if source, err = l.source(); err != nil {
			return nil, err
		}
	}
	return openSocket(l, "send to", group, func(o *options) {
		if size > 0 {
			o.set("SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF, size)
		}
		o.do("SO_BINDTODEVICE", unix.BindToDevice(o.fd, l.name))
		if group.Addr().Is4() {
			o.do("IP_MULTICAST_IF", unix.SetsockoptIPMreqn(o.fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(l.index)}))
			o.set("IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0)
			o.set("IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, int(ttl))
			o.set("IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
			if o.err == nil {
				o.do("bind to "+source.String(), unix.Bind(o.fd, l.sockaddr(netip.AddrPortFrom(source, 0))))
			}
		} else {
			o.set("IPV6_MULTICAST_IF", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, l.index)
			o.set("IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0)
			o.set("IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, int(ttl))
			o.set("IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT)
		}
		if o.err == nil {
			o.do("connect (does the interface have an address of this family? ip address show dev "+l.name+")", unix.Connect(o.fd, l.sockaddr(group)))
		}
	})
}

// receiveBuffer is room for what comes while a backup waits for the table or for a CPU [bytes]: no
// message is acknowledged, so what finds no room is lost. It may be more than net.core.rmem_max.
const receiveBuffer = 8 << 20

// receiveSocket is a backup's: it gets what comes to the group through the interface. It is set up
// as in make_receive_sock, but for its buffer if no size is given.
func receiveSocket(l link, group netip.AddrPort, size int) (*net.UDPConn, error) {
	return openSocket(l, "receive from", group, func(o *options) {
		o.set("SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		if size > 0 {
			o.set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		} else {
			o.set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
		}
		o.set("SO_RXQ_OVFL", unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
		o.do("SO_BINDTODEVICE", unix.BindToDevice(o.fd, l.name))
		if o.err == nil {
			o.do("bind", unix.Bind(o.fd, l.sockaddr(group)))
		}
		if o.err != nil {
			return
		}
		if group.Addr().Is4() {
			o.do("IP_ADD_MEMBERSHIP", unix.SetsockoptIPMreqn(o.fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP,
				&unix.IPMreqn{Multiaddr: group.Addr().As4(), Ifindex: int32(l.index)}))
		} else {
			o.do("IPV6_JOIN_GROUP", unix.SetsockoptIPv6Mreq(o.fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
				&unix.IPv6Mreq{Multiaddr: group.Addr().As16(), Interface: uint32(l.index)}))
		}
	})
}

// isBound reports whether the interface that a socket is bound to is still there.
func isBound(conn *net.UDPConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		_, err := unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
		gone = errors.Is(err, unix.ENODEV)
	})
	return err == nil && !gone
}
