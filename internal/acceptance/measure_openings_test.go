// SPDX-License-Identifier: Apache-2.0

//go:build measure

package acceptance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// A short connection: the packets of both ends in order, each 10 ms after the one before.
// The client's fourth packet comes when it has sent three, so that sync_threshold is passed.
var life = []struct {
	fromServer bool
	flags      byte
	payload    int // bytes
}{
	{false, tcpSYN, 0},
	{true, tcpSYN | tcpACK, 0},
	{false, tcpACK, 0},
	{false, tcpPSH | tcpACK, 200},
	{true, tcpPSH | tcpACK, 1000},
	{false, tcpACK, 0},
	{false, tcpPSH | tcpACK, 200},
	{true, tcpPSH | tcpACK, 1000},
	{false, tcpFIN | tcpACK, 0},
	{true, tcpFIN | tcpACK, 0},
	{false, tcpACK, 0},
}

const (
	tcpFIN, tcpSYN, tcpPSH, tcpACK = 0x01, 0x02, 0x08, 0x10

	// lifeStep is the time from a packet of a connection to its next one.
	lifeStep = 10 * time.Millisecond
	// openingsServices are virtual services of one server each, so that the generator knows
	// which server has a connection.
	openingsServices = 4
	// openingsBurst is the most connections that the generator treats at once: less than a
	// step of a life, at any rate above 10 000/s.
	openingsBurst = 64

	openingsVirtual, openingsServerPort = 80, 8080 // ports; of the i-th service 80 + i
	openingsMAC, openingsFarMAC         = "02:00:00:00:00:01", "02:00:00:00:00:02"

	ethernetBytes, ipBytes, tcpBytes = 14, 20, 20
)

var (
	openingsAddress = netip.MustParseAddr("10.20.0.1")
	openingsServer  = netip.MustParseAddr("172.16.0.10") // of the first service
	openingsClients = netip.MustParseAddr("10.10.0.2")   // the first
)

// openingsClient is the address and port of a connection. After so many as the population
// clients use their ports again: a SYN ends the earlier connection, which is in TIME_WAIT, and
// opens the next.
func openingsClient(n, population uint64) (addr uint32, port uint16) {
	const addresses = 1000
	flow := uint32(n % population)
	first := openingsClients.As4()
	return binary.BigEndian.Uint32(first[:]) + flow%addresses, uint16(1024 + flow/addresses)
}

// openingsFrame is a packet without what differs between connections, and the sums without
// that.
type openingsFrame struct {
	bytes   []byte
	ip, tcp uint32
	client  int // offset of the client's address in it
	port    int // of the client's port
}

func newOpeningsFrame(service, stage int) *openingsFrame {
	one := life[stage]
	f := &openingsFrame{bytes: make([]byte, ethernetBytes+ipBytes+tcpBytes+one.payload)}
	to, _ := net.ParseMAC(openingsMAC)
	from, _ := net.ParseMAC(openingsFarMAC)
	copy(f.bytes, to)
	copy(f.bytes[6:], from)
	f.bytes[12] = 8
	ip, tcp := f.bytes[ethernetBytes:ethernetBytes+ipBytes], f.bytes[ethernetBytes+ipBytes:]
	copy(ip, []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, unix.IPPROTO_TCP})
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(tcp)))
	if one.fromServer {
		server := openingsServer.As4()
		server[3] += byte(service)
		copy(ip[12:], server[:])
		binary.BigEndian.PutUint16(tcp, openingsServerPort)
		f.client, f.port = ethernetBytes+16, ethernetBytes+ipBytes+2
	} else {
		virtual := openingsAddress.As4()
		copy(ip[16:], virtual[:])
		binary.BigEndian.PutUint16(tcp[2:], uint16(openingsVirtual+service))
		f.client, f.port = ethernetBytes+12, ethernetBytes+ipBytes
	}
	binary.BigEndian.PutUint32(tcp[4:], 1)
	tcp[12], tcp[13] = tcpBytes/4<<4, one.flags
	binary.BigEndian.PutUint16(tcp[14:], 64240)
	f.ip = onesSum(ip)
	f.tcp = onesSum(tcp) + onesSum(ip[12:]) + unix.IPPROTO_TCP + uint32(len(tcp))
	return f
}

func onesSum(b []byte) (sum uint32) {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	return sum
}

func onesFold(sum uint32) uint16 {
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum&0xffff)
}

// write writes the packet of a connection: what differs, into a copy of it.
func (f *openingsFrame) write(b []byte, n, population uint64) {
	addr, port := openingsClient(n, population)
	binary.BigEndian.PutUint32(b[f.client:], addr)
	binary.BigEndian.PutUint16(b[f.port:], port)
	varied := addr>>16 + addr&0xffff
	binary.BigEndian.PutUint16(b[ethernetBytes+10:], onesFold(f.ip+varied))
	binary.BigEndian.PutUint16(b[ethernetBytes+ipBytes+16:], onesFold(f.tcp+varied+uint32(port)))
}

// packetMessage is struct mmsghdr of sendmmsg(2).
type packetMessage struct {
	header unix.Msghdr
	_      uint32 // bytes sent
	_      [4]byte
}

// openingsStage is a packet of the lives of some connections: one system call sends it.
type openingsStage struct {
	fd       int
	clients  uint64 // population
	frames   [openingsServices]*openingsFrame
	messages [openingsBurst]packetMessage
	vectors  [openingsBurst]unix.Iovec
	buffers  [openingsBurst][]byte // the i-th has the frame of service i % openingsServices
}

func newOpeningsStage(fd, stage int, population uint64) *openingsStage {
	s := &openingsStage{fd: fd, clients: population}
	for i := range s.frames {
		s.frames[i] = newOpeningsFrame(i, stage)
	}
	for i := range s.buffers {
		s.buffers[i] = append([]byte(nil), s.frames[i%openingsServices].bytes...)
		s.vectors[i].Base = &s.buffers[i][0]
		s.vectors[i].SetLen(len(s.buffers[i]))
		s.messages[i].header.Iov = &s.vectors[i]
		s.messages[i].header.SetIovlen(1)
	}
	return s
}

// send sends the packets of the connections first to first + n - 1; first is a multiple of
// openingsServices.
func (s *openingsStage) send(first uint64, n int) error {
	for i := range n {
		s.frames[i%openingsServices].write(s.buffers[i], first+uint64(i), s.clients)
	}
	for at := 0; at < n; {
		sent, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.messages[at])), uintptr(n-at), 0, 0, 0)
		switch {
		case errno == 0:
			at += int(sent)
		case errno != unix.ENOBUFS && errno != unix.EINTR:
			return fmt.Errorf("send packets: %w", errno)
		}
	}
	return nil
}

// openings is what the generator has done.
type openings struct {
	opened  uint64
	packets uint64
	late    time.Duration // the most by which a packet was sent after it was due
}

// generateOpenings sends the packets of short connections into a director, from the other
// ends of its devices in a namespace, at a rate, until the context ends: then connections
// of all ages are left. It has a thread of its own on one CPU. What the director does with
// a packet is done by the same thread, before the next one is sent. As a rule the generator
// is never behind; it catches up if it is.
func generateOpenings(ctx context.Context, far *host.Namespace, clientSide, serverSide string, rate, cpu int, population uint64) (o openings, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and not unlocked: the thread ends with its affinity
		err = far.Do(func() (err error) {
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return fmt.Errorf("keep the generator on CPU %d: %w", cpu, err)
			}
			fds := map[bool]int{}
			for fromServer, dev := range map[bool]string{false: clientSide, true: serverSide} {
				fd, err := packetSocket(far, dev)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				fds[fromServer] = fd
			}
			stages := make([]*openingsStage, len(life))
			for i, one := range life {
				stages[i] = newOpeningsStage(fds[one.fromServer], i, population)
			}
			o, err = pacedOpenings(ctx, stages, rate)
			return err
		})
	}()
	<-done
	return o, err
}

func packetSocket(ns *host.Namespace, dev string) (int, error) {
	index, err := ns.LinkIndex(dev)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index})); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("packet socket on %s: %w", dev, err)
	}
	return fd, nil
}

func pacedOpenings(ctx context.Context, stages []*openingsStage, rate int) (o openings, err error) {
	// A whole number of bursts, so that a stage begins with the first service.
	step := uint64(lifeStep.Seconds()*float64(rate)) / openingsServices * openingsServices
	begin := time.Now()
	for ctx.Err() == nil {
		passed := time.Since(begin)
		due := int64(passed.Seconds()*float64(rate)) - int64(o.opened)
		n := int(min(due, openingsBurst)) / openingsServices * openingsServices
		if n < openingsBurst/4 {
			time.Sleep(200 * time.Microsecond)
			continue
		}
		o.late = max(o.late, passed-time.Duration(float64(o.opened)/float64(rate)*1e9))
		for i, s := range stages {
			first := o.opened - uint64(i)*step
			if uint64(i)*step > o.opened {
				break // the first connections are younger
			}
			if err := s.send(first, n); err != nil {
				return o, err
			}
			o.packets += uint64(n)
		}
		o.opened += uint64(n)
	}
	return o, nil
}
