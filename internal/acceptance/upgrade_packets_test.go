// SPDX-License-Identifier: Apache-2.0

//go:build upgrade

package acceptance

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/host"
)

// packets are the last packets of each idle connection on the director's devices, to
// tell what became of one that is lost.
type packets struct {
	mu sync.Mutex
	of map[netip.AddrPort][]string // by client
}

// packetsKept is how many of a connection are kept.
const packetsKept = 24

// watchIdle notes what goes through a namespace from now on.
func watchIdle(t *testing.T, ns *host.Namespace) *packets {
	t.Helper()
	p := &packets{of: map[netip.AddrPort][]string{}}
	var fd int
	err := ns.Do(func() (err error) {
		everything := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(everything)); err != nil {
			return err
		}
		return onlyPort(fd, idlePort)
	})
	if err != nil {
		t.Fatalf("watch packets: %v", err)
	}
	wait := unix.NsecToTimeval(int64(200 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		p.read(fd, stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		unix.Close(fd)
	})
	return p
}

// onlyPort has a socket take IPv4 packets without options from and to a port.
func onlyPort(fd int, port uint32) error {
	const load, equal, end = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	program := []unix.SockFilter{
		{Code: load, K: etherType},
		{Code: equal, K: unix.ETH_P_IP, Jf: 5},
		{Code: load, K: sourcePort},
		{Code: equal, K: port, Jt: 2},
		{Code: load, K: sourcePort + 2},
		{Code: equal, K: port, Jf: 1},
		{Code: end, K: 128},
		{Code: end},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)})
}

// Where a frame of IPv4 without options has it.
const (
	etherType  = 12
	sourcePort = 14 + 20
)

func (p *packets) read(fd int, stop <-chan struct{}) {
	frame := make([]byte, 128)
	for {
		n, from, err := unix.Recvfrom(fd, frame, 0)
		select {
		case <-stop:
			return
		default:
		}
		if at, ok := from.(*unix.SockaddrLinklayer); ok && err == nil {
			p.note(frame[:n], at)
		}
	}
}

func (p *packets) note(f []byte, at *unix.SockaddrLinklayer) {
	const tcpFlags = "FSRPAU"
	if len(f) < sourcePort+20 || f[23] != unix.IPPROTO_TCP {
		return
	}
	ip, tcp := f[14:], f[sourcePort:]
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), binary.BigEndian.Uint16(tcp))
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:])), binary.BigEndian.Uint16(tcp[2:]))
	client := from
	if from.Port() == idlePort {
		client = to
	}
	flags := ""
	for i, name := range tcpFlags {
		if tcp[13]&(1<<i) != 0 {
			flags += string(name)
		}
	}
	direction := "in by"
	if at.Pkttype == unix.PACKET_OUTGOING {
		direction = "out by"
	}
	length := int(binary.BigEndian.Uint16(ip[2:])) - 20 - int(tcp[12]>>4)*4
	line := fmt.Sprintf("%s %s device %d: %v > %v %s seq %d ack %d, %d bytes", time.Now().Format("15:04:05.000"), direction, at.Ifindex, from, to,
		flags, binary.BigEndian.Uint32(tcp[4:]), binary.BigEndian.Uint32(tcp[8:]), length)
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := append(p.of[client], line)
	p.of[client] = lines[max(0, len(lines)-packetsKept):]
}

// last is what went by of a client's connection.
func (p *packets) last(client netip.AddrPort) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.of[client], "\n\t")
}
