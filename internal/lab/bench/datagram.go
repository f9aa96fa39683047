// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// Frames of UDP datagrams, each from a client of its own.
const (
	etherHeader = 14
	udpHeader   = 8
	maxPayload  = 64 // where lengths differ
)

// datagrams makes the frames that clients of one network send to a service.
type datagrams struct {
	to   netip.AddrPort
	from netip.Addr // the first client
	src  [6]byte    // hardware addresses
	dst  [6]byte

	payload int // of each; 0: lengths differ, so that a wrong count of bytes shows
	bits    int // of clients' addresses; 0: 15
}

// frame is the i-th client's.
func (d datagrams) frame(i int) []byte {
	payload := d.payload
	if payload == 0 {
		payload = 1 + i%maxPayload
	}
	return d.datagram(d.client(i), d.to, payload)
}

// reply is a server's to the i-th client.
func (d datagrams) reply(from netip.AddrPort, i int) []byte {
	return d.datagram(from, d.client(i), d.payload)
}

// datagram is a frame with so many zeros.
func (d datagrams) datagram(from, to netip.AddrPort, payload int) []byte {
	f := append(append([]byte(nil), d.dst[:]...), d.src[:]...)
	length := udpHeader + payload
	if to.Addr().Is4() {
		f = append(f, 8, 0)
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+length))
		ip = append(append(ip, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		f = append(f, ip...)
	} else {
		f = append(f, 0x86, 0xdd, 0x60, 0, 0, 0, byte(length>>8), byte(length), unix.IPPROTO_UDP, 64)
		f = append(append(f, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	}
	udp := make([]byte, length)
	binary.BigEndian.PutUint16(udp, from.Port())
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(length))
	pseudo := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	pseudo = append(pseudo, 0, unix.IPPROTO_UDP, byte(length>>8), byte(length))
	sum := checksum(append(pseudo, udp...))
	if sum == 0 {
		sum = 0xffff // RFC 768: zero says that there is none
	}
	binary.BigEndian.PutUint16(udp[6:], sum)
	return append(f, udp...)
}

// clientBits is that of addresses where datagrams.bits is 0.
const clientBits = 15

func (d datagrams) addressBits() int {
	if d.bits == 0 {
		return clientBits
	}
	return d.bits
}

// client is where the i-th datagram comes from: one address after the other, then
// the next port.
func (d datagrams) client(i int) netip.AddrPort {
	bits := d.addressBits()
	b := d.from.AsSlice()
	binary.BigEndian.PutUint16(b[len(b)-2:], uint16(i&(1<<bits-1)+1))
	addr, _ := netip.AddrFromSlice(b) // as long as the first one
	return netip.AddrPortFrom(addr, uint16(1024+i>>bits))
}

// checksum is the Internet's (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// sent is what clients sent.
type sent struct {
	at      []time.Time // just before each
	packets uint64
	bytes   uint64 // of IP
}

// send sends the first n datagrams out of a device.
func (d datagrams) send(ns *host.Namespace, dev string, n int) (s sent, err error) {
	index, err := ns.LinkIndex(dev)
	if err != nil {
		return s, err
	}
	s.at = make([]time.Time, n)
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		defer unix.Close(fd)
		to := &unix.SockaddrLinklayer{Ifindex: index}
		for i := range s.at {
			frame := d.frame(i)
			s.at[i] = time.Now()
			for err = unix.Sendto(fd, frame, 0, to); errors.Is(err, unix.ENOBUFS); {
				time.Sleep(time.Millisecond)
				err = unix.Sendto(fd, frame, 0, to)
			}
			if err != nil {
				return fmt.Errorf("send a datagram: %w", err)
			}
			s.packets++
			s.bytes += uint64(len(frame) - etherHeader)
		}
		return nil
	})
	return s, err
}
