// SPDX-License-Identifier: Apache-2.0

package conform

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// servers are all real servers, since every address of their network is local
// to one namespace, or the director as a server. A server answers with the
// address and port that was reached and holds a connection open until the
// client closes.
type servers struct {
	ns    *host.Namespace
	close []io.Closer

	mu      sync.Mutex
	ports   map[int]bool
	arrived string // where the last datagram arrived
}

func newServers(ns *host.Namespace) *servers {
	return &servers{ns: ns, ports: map[int]bool{}}
}

func (s *servers) Close() {
	for _, c := range s.close {
		c.Close()
	}
}

// listen serves TCP and UDP of both families on a port.
func (s *servers) listen(port int) error {
	if s.ports[port] {
		return nil
	}
	s.ports[port] = true
	return s.ns.Do(func() error {
		for _, family := range []string{"4", "6"} {
			lc := net.ListenConfig{Control: wantDestination(family)}
			l, err := lc.Listen(context.Background(), "tcp"+family, fmt.Sprintf(":%d", port))
			if err != nil {
				return fmt.Errorf("real servers: %w", err)
			}
			u, err := lc.ListenPacket(context.Background(), "udp"+family, fmt.Sprintf(":%d", port))
			if err != nil {
				return fmt.Errorf("real servers: %w", err)
			}
			s.close = append(s.close, l, u)
			go s.serveTCP(l)
			go s.serveUDP(u.(*net.UDPConn), port)
		}
		return nil
	})
}

// wantDestination asks the kernel which address a datagram was for.
func wantDestination(family string) func(string, string, syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		var err error
		_ = c.Control(func(fd uintptr) {
			if network[:3] != "udp" {
				return
			}
			// A server may send from the port that it listens on.
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
				return
			}
			if family == "4" {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
			}
		})
		return err
	}
}

func (s *servers) serveTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			here := c.LocalAddr().(*net.TCPAddr).AddrPort()
			if _, err := fmt.Fprintln(c, unmap(here)); err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c) // until the client closes
		}()
	}
}

func (s *servers) serveUDP(u *net.UDPConn, port int) {
	data, oob := make([]byte, 2048), make([]byte, 256)
	for {
		_, n, _, peer, err := u.ReadMsgUDPAddrPort(data, oob)
		if err != nil {
			return
		}
		addr, reply, err := destination(oob[:n])
		if err != nil {
			continue
		}
		here := netip.AddrPortFrom(addr, uint16(port)).String()
		s.mu.Lock()
		s.arrived = here
		s.mu.Unlock()
		_, _, _ = u.WriteMsgUDPAddrPort([]byte(here), reply, peer)
	}
}

// takeArrived tells where the last datagram arrived, once.
func (s *servers) takeArrived() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.arrived
	s.arrived = ""
	return at
}

// destination reads IP_PKTINFO (ip(7)) or IPV6_PKTINFO (RFC 3542, 6.1), and
// makes the control message that sends the answer from that address.
func destination(oob []byte) (netip.Addr, []byte, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, nil, err
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			info := unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[8:12])}
			return netip.AddrFrom4([4]byte(m.Data[8:12])), unix.PktInfo4(&info), nil
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20:
			info := unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])}
			return netip.AddrFrom16([16]byte(m.Data[:16])), unix.PktInfo6(&info), nil
		}
	}
	return netip.Addr{}, nil, fmt.Errorf("no packet information in %d bytes", binary.Size(oob))
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
