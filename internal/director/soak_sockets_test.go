// SPDX-License-Identifier: Apache-2.0

//go:build soak

package director

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// listen echoes what comes by TCP and by UDP to any address, on the ports that
// servers have.
func (n *soakNet) listen() {
	n.Helper()
	n.must(n.servers.Do(func() error {
		for _, port := range []int{80, 8080} {
			tcp, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			n.Cleanup(func() { tcp.Close() })
			go echoTCP(tcp)
			for _, network := range []string{"udp4", "udp6"} {
				udp, err := net.ListenUDP(network, &net.UDPAddr{Port: port})
				if err != nil {
					return err
				}
				n.Cleanup(func() { udp.Close() })
				if err := tellsAddress(udp, network == "udp6"); err != nil {
					return err
				}
				go echoUDP(udp, network == "udp6")
			}
		}
		return nil
	}))
}

func echoTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = io.Copy(c, c)
		}()
	}
}

// tellsAddress has each datagram come with the address that it was sent to.
func tellsAddress(c *net.UDPConn, six bool) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		if six {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
	if err != nil {
		return err
	}
	return set
}

// echoUDP answers from the address that was asked.
func echoUDP(c *net.UDPConn, six bool) {
	data, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, m, _, from, err := c.ReadMsgUDPAddrPort(data, control)
		if err != nil {
			return
		}
		info := control[:m]
		switch {
		case six && m >= unix.CmsgSpace(20): // struct in6_pktinfo: address, device
			clear(info[unix.CmsgLen(0)+16 : unix.CmsgLen(0)+20])
		case !six && m >= unix.CmsgSpace(12): // struct in_pktinfo: device, source, address
			at := unix.CmsgLen(0)
			clear(info[at : at+4])
			copy(info[at+4:at+8], info[at+8:at+12])
		}
		_, _, _ = c.WriteMsgUDPAddrPort(data[:n], info, from)
	}
}

// asker asks servers through the director.
type asker struct {
	*soak
	random *rand.Rand
	idle   []net.Conn // left open
}

// askServers asks until the run ends. Many questions get no answer: their service
// has no server, or loses it meanwhile. An answer must be the right one.
func (s *soak) askServers(random *rand.Rand) error {
	a := &asker{soak: s, random: random}
	defer func() {
		for _, c := range a.idle {
			c.Close()
		}
	}()
	for !s.over() {
		network := "tcp"
		if random.IntN(3) == 0 {
			network = "udp"
		}
		f := families[random.IntN(2)]
		s.sending.RLock()
		err := a.ask(network, at(f.vip(soakVIPs[random.IntN(len(soakVIPs))]), 80), a.client(f))
		s.sending.RUnlock()
		s.asked.Add(1)
		if err == nil {
			s.answered.Add(1)
		} else if err != errNoAnswer {
			return err
		}
		s.sleep(time.Duration(random.IntN(5)) * time.Millisecond)
	}
	return nil
}

// client is one of the addresses that sockets have; packets that are made have
// others.
func (a *asker) client(f family) netip.Addr {
	if f.number == ipv4.number {
		return netip.AddrFrom4([4]byte{10, 10, byte(a.random.IntN(32)), byte(1 + a.random.IntN(250))})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:10:ffff::%x", 1+a.random.IntN(8000)))
}

func (a *asker) ask(network, to string, from netip.Addr) error {
	d := net.Dialer{Timeout: time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	if network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	// A port of an address, and not of all addresses, is taken by connect.
	d.Control = func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) })
	}
	c, err := d.DialContext(a.ctx, network, to)
	if err != nil {
		return errNoAnswer
	}
	most, patience := 1<<16, 2*time.Second
	if network == "udp" {
		most, patience = 6000, 200*time.Millisecond
	}
	data := make([]byte, 1+a.random.IntN(1+a.random.IntN(most)))
	for i := range data {
		data[i] = byte(a.random.Uint32())
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	if network == "udp" {
		_, err = c.Write(data)
	} else {
		go func() { _, _ = c.Write(data) }()
	}
	got := make([]byte, len(data))
	if err == nil {
		_, err = io.ReadFull(c, got)
	}
	if err == nil && !bytes.Equal(got, data) {
		c.Close()
		return fmt.Errorf("%s to %s: %d bytes come back changed", network, to, len(data))
	}
	a.end(c)
	if err != nil {
		return errNoAnswer
	}
	return nil
}

// end closes a connection, in one of several ways, sometimes much later.
func (a *asker) end(c net.Conn) {
	switch tcp, ok := c.(*net.TCPConn); {
	case a.random.IntN(8) == 0:
		if a.idle = append(a.idle, c); len(a.idle) > 50 {
			a.idle[0].Close()
			a.idle = a.idle[1:]
		}
		return
	case ok && a.random.IntN(4) == 0:
		_ = tcp.SetLinger(0) // a RST
	}
	c.Close()
}
