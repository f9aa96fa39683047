// SPDX-License-Identifier: Apache-2.0

package testrun

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/director"
)

// PacketLoop runs packets through the data plane again and again without a
// network (BPF_PROG_TEST_RUN), to measure what its programs cost. The
// connections that they open are real. It is to be used in the director's
// network namespace.
type PacketLoop struct {
	d     *director.Director
	progs *bpfobj.LbPrograms
	objs  benchObjects
	scene benchScene
	from  [2]entrance       // of clients, and of servers
	aimed map[*ebpf.Map]Way // what the programs that make packets go on with
	known link.Link         // of Register
}

// entrance is where packets of one side come in: by a device, as socket buffers or as
// frames in front of the classifiers.
type entrance struct{ tc, xdp testRun }

// at makes it ready; it must not be moved afterwards.
func (e *entrance) at(device string, objs *benchObjects) error {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	e.tc.init(objs.BenchPacket.FD(), dev.Index)
	e.xdp.initXDP(objs.BenchFrame.FD(), dev.Index, PacketLoopBytes)
	e.tc.call, e.xdp.call = unix.Syscall, unix.Syscall
	return nil
}

// PacketLoopBytes is the length of a PacketLoop's frames.
const PacketLoopBytes = len(benchScene{}.Frame)

// NewPacketLoop prepares one whose packets come in by these devices.
func NewPacketLoop(d *director.Director, clientDev, serverDev string) (*PacketLoop, error) {
	if err := d.PretendXDP(clientDev, serverDev); err != nil {
		return nil, err
	}
	l := &PacketLoop{d: d, progs: d.Programs(), aimed: map[*ebpf.Map]Way{}}
	if err := loadBenchObjects(&l.objs, nil); err != nil {
		return nil, director.ExplainLoad(err)
	}
	if err := errors.Join(l.from[0].at(clientDev, &l.objs), l.from[1].at(serverDev, &l.objs)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Register attaches the program that makes XDP packets to the loopback of the thread's network
// namespace, so that the kernel's dispatcher of XDP programs keeps it. Else it is built anew
// for each run, one run after the other: loops could not run at the same time.
func (l *PacketLoop) Register() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	l.known, err = link.AttachXDP(link.XDPOptions{Program: l.objs.BenchFrame, Interface: lo.Index, Flags: link.XDPGenericMode})
	if err != nil {
		return fmt.Errorf("attach the program that makes packets: %w", err)
	}
	return nil
}

// Close frees the program that makes the packets.
func (l *PacketLoop) Close() (err error) {
	if l.known != nil {
		err = l.known.Close()
	}
	return errors.Join(err, l.objs.Close())
}

// Scene is what a PacketLoop sends: packets of flows in rotation. Frame, TCP or UDP, IPv4
// or IPv6 without options, is the first one's, PacketLoopBytes long. Numbers but that of
// servers are powers of two.
type Scene struct {
	Frame     []byte
	First     uint32 // client address: its last word
	Flows     int
	Addresses int // of clients, each flow from the next one; 0: one for 2^15 flows
	Services  int // addresses from the frame's on, each flow to the next one; 0: 1
	// Replies: the frame is a server's. Order are the servers' addresses, counted from the
	// frame's, as the flows of a service have them in turn; of the next service they have
	// the next port. None: one.
	Replies bool
	Order   []uint8
}

// addressPorts is how many flows have a client address where Addresses is 0.
const addressPorts = 1 << 15

// Scene sets what is sent from now on, of clients.
func (l *PacketLoop) Scene(frame []byte, first uint32, flows int) error {
	return l.Send(Scene{Frame: frame, First: first, Flows: flows})
}

// Send sets what is sent from now on.
func (l *PacketLoop) Send(s Scene) error {
	in := benchScene{
		First: s.First, Flows: uint32(s.Flows), Addresses: 1 << 31, AddressShift: log2(addressPorts),
		Services: uint32(max(s.Services, 1)), ServiceShift: log2(s.Services), Servers: uint32(max(len(s.Order), 1)),
	}
	if s.Addresses > 0 {
		in.Addresses, in.AddressShift, in.PortShift = uint32(s.Addresses), 0, log2(s.Addresses)
	}
	if len(s.Frame) != PacketLoopBytes || !powersOfTwo(in.Flows, in.Addresses, in.Services) || len(s.Order) > len(in.Order) {
		return fmt.Errorf("a scene of %d bytes, %d flows, %d addresses, %d services, %d servers: want %d bytes, powers of two, at most %d servers",
			len(s.Frame), s.Flows, s.Addresses, s.Services, len(s.Order), PacketLoopBytes, len(in.Order))
	}
	if s.Replies {
		in.Replies = 1
	}
	copy(in.Frame[:], s.Frame)
	copy(in.Order[:], s.Order)
	l.scene = in
	return l.objs.CurrentScene.Set(in)
}

func powersOfTwo(list ...uint32) bool {
	for _, n := range list {
		if n == 0 || n&(n-1) != 0 {
			return false
		}
	}
	return true
}

// log2 is that of a power of two; 0 of 0.
func log2(n int) uint32 { return uint32(bits.Len(uint(max(n, 1))) - 1) }

// Way is how far the packets of a PacketLoop go.
type Way int

const (
	Nowhere        Way = iota // they are made, and that is all: what is to be taken off
	FromHere                  // through what packets from clients go through
	WholeOnly                 // likewise, without the fast path
	NowhereXDP                // Nowhere, made for XDP
	InXDP                     // through what is in front of the classifiers
	FromServers               // FromHere, of packets from servers
	FromServersXDP            // InXDP, of packets from servers
)

// target is the program that a way's packets go through, if any.
func (l *PacketLoop) target(way Way) *ebpf.Program {
	switch way {
	case FromHere:
		return l.progs.LbClient
	case WholeOnly:
		return l.progs.LbWhole
	case InXDP:
		return l.progs.LbXdpClient
	case FromServers:
		return l.progs.LbServer
	case FromServersXDP:
		return l.progs.LbXdpServer
	}
	return nil
}

// entrance is where a way's packets come in, and the program that they go through is set.
func (l *PacketLoop) entrance(way Way) (run *testRun, targets *ebpf.Map, xdp bool) {
	from := &l.from[0]
	if way == FromServers || way == FromServersXDP {
		from = &l.from[1]
	}
	if way == NowhereXDP || way == InXDP || way == FromServersXDP {
		return &from.xdp, l.objs.XdpTargets, true
	}
	return &from.tc, l.objs.Targets, false
}

// Times sends so many packets and returns the time that each took by the
// kernel's clock, and what became of the last one.
func (l *PacketLoop) Times(n int, way Way) (each time.Duration, fate Fate, err error) {
	if err := l.aim(way); err != nil {
		return 0, 0, err
	}
	return l.times(n, way)
}

// Singly is Times with each packet in a buffer of its own, of which nothing is left of the
// one before: for programs that make packets longer. The time has the kernel's clock in it,
// as that of the way Nowhere has, and caches are colder.
func (l *PacketLoop) Singly(n int, way Way) (each time.Duration, fate Fate, err error) {
	if err := l.aim(way); err != nil {
		return 0, 0, err
	}
	var all time.Duration
	for range n {
		var one time.Duration
		if one, fate, err = l.times(1, way); err != nil {
			return 0, 0, err
		}
		all += one
	}
	return all / time.Duration(max(n, 1)), fate, nil
}

// One sends one packet and returns what it became, valid until the next one.
func (l *PacketLoop) One(way Way) (frame []byte, fate Fate, err error) {
	if _, fate, err = l.Times(1, way); err != nil {
		return nil, 0, err
	}
	run, _, _ := l.entrance(way)
	return run.out[:min(int(run.attr.dataOut), len(run.out))], fate, nil
}

// aim sets the program that packets of a way go through.
func (l *PacketLoop) aim(way Way) (err error) {
	_, targets, _ := l.entrance(way)
	if was, is := l.aimed[targets]; is && was == way {
		return nil
	}
	if target := l.target(way); target != nil {
		err = targets.Put(uint32(0), target)
	} else if err = targets.Delete(uint32(0)); errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("set the program to be measured: %w", err)
	}
	l.aimed[targets] = way
	return nil
}

func (l *PacketLoop) times(n int, way Way) (each time.Duration, fate Fate, err error) {
	run, _, xdp := l.entrance(way)
	run.attr.repeat = uint32(n)
	fate, err = run.run(l.scene.Frame[:])
	if xdp {
		fate = fateOfXDP(fate)
	}
	return time.Duration(run.attr.duration), fate, err
}

// fateOfXDP translates enum xdp_action of linux/bpf.h.
func fateOfXDP(action Fate) Fate {
	switch action {
	case 1:
		return Dropped
	case 3, 4:
		return Forwarded
	}
	return Passed
}

// Why is what became of packets that were not forwarded, by reason.
func (l *PacketLoop) Why() string {
	s, err := l.d.Status()
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, r := range s.Reasons {
		if r.Packets > 0 {
			parts = append(parts, fmt.Sprintf("%s %s: %d", r.Verdict, r.Reason, r.Packets))
		}
	}
	return strings.Join(parts, ", ")
}
