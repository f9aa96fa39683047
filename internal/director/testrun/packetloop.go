// SPDX-License-Identifier: Apache-2.0

package testrun

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/cilium/ebpf"
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
	run   testRun
	xdp   testRun // through what is in front of the classifiers
}

// PacketLoopBytes is the length of a PacketLoop's frames.
const PacketLoopBytes = len(benchScene{}.Frame)

// NewPacketLoop prepares one whose packets come in by the clients' device.
func NewPacketLoop(d *director.Director, clientDev, serverDev string) (*PacketLoop, error) {
	if err := d.PretendXDP(clientDev, serverDev); err != nil {
		return nil, err
	}
	client, err := net.InterfaceByName(clientDev)
	if err != nil {
		return nil, err
	}
	l := &PacketLoop{d: d, progs: d.Programs()}
	if err := loadBenchObjects(&l.objs, nil); err != nil {
		return nil, director.ExplainLoad(err)
	}
	l.run.init(l.objs.BenchPacket.FD(), client.Index)
	l.xdp.initXDP(l.objs.BenchFrame.FD(), client.Index, PacketLoopBytes)
	l.run.call, l.xdp.call = unix.Syscall, unix.Syscall
	return l, nil
}

// Close frees the program that makes the packets.
func (l *PacketLoop) Close() error { return l.objs.Close() }

// Scene sets what is sent from now on: a frame of PacketLoopBytes, TCP or UDP,
// IPv4 or IPv6 without options, from so many flows in rotation (a power of two),
// the first of which has the client address, of which first is the last word.
func (l *PacketLoop) Scene(frame []byte, first uint32, flows int) error {
	if len(frame) != PacketLoopBytes || flows < 1 || flows&(flows-1) != 0 {
		return fmt.Errorf("a scene of %d bytes and %d flows: want %d, and a power of two", len(frame), flows, PacketLoopBytes)
	}
	l.scene = benchScene{Frame: [PacketLoopBytes]uint8(frame), First: first, Flows: uint32(flows)}
	return l.objs.Scenes.Put(uint32(0), l.scene)
}

// Way is how far the packets of a PacketLoop go.
type Way int

const (
	Nowhere    Way = iota // they are made, and that is all: what is to be taken off
	FromHere              // through what packets from clients go through
	WholeOnly             // likewise, without the fast path
	NowhereXDP            // Nowhere, made for XDP
	InXDP                 // through what is in front of the classifiers
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
	}
	return nil
}

// Times sends so many packets and returns the time that each took by the
// kernel's clock, and what became of the last one.
func (l *PacketLoop) Times(n int, way Way) (each time.Duration, fate Fate, err error) {
	targets, run := l.objs.Targets, &l.run
	if way == NowhereXDP || way == InXDP {
		targets, run = l.objs.XdpTargets, &l.xdp
	}
	if target := l.target(way); target != nil {
		err = targets.Put(uint32(0), target)
	} else if err = targets.Delete(uint32(0)); errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("set the program to be measured: %w", err)
	}
	run.attr.repeat = uint32(n)
	fate, err = run.run(l.scene.Frame[:])
	if run == &l.xdp {
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
