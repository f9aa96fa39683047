// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"imbang/internal/director"
)

// Emitter sends datagrams out of a device, for measurements: frames in pages
// of a pool, as a NIC's driver has them, without socket buffers. The other end
// of a veth device gets them if it polls, with an XDP program or GRO, else they
// are lost. Everything of it is to be called in the device's network namespace.
type Emitter struct {
	objs  floodObjects
	order floodOrder
	link  link.Link
}

const (
	emitterBatch = 64      // frames before the receiver's turn: veth's queue has 256
	emitterRun   = 1 << 18 // datagrams of one system call at most

	liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES of linux/bpf.h
)

// NewEmitter makes one of flow 0's frame, IPv4 and 60 bytes long. Flow i comes
// from another client, and goes to the address i modulo targets behind the
// frame's.
func NewEmitter(device string, frame []byte, targets int) (*Emitter, error) {
	dev, err := ethernet(device)
	if err != nil {
		return nil, err
	}
	e := &Emitter{order: floodOrder{Device: uint32(dev.Index), Targets: uint32(targets)}}
	if len(frame) != len(e.order.Frame) {
		return nil, fmt.Errorf("a frame of %d bytes, must be %d", len(frame), len(e.order.Frame))
	}
	copy(e.order.Frame[:], frame)
	if err := loadFloodObjects(&e.objs, nil); err != nil {
		return nil, director.ExplainLoad(err)
	}
	// Attached to a device, it is known to the kernel's dispatcher of XDP
	// programs; else each run would wait until that is built anew.
	e.link, err = link.AttachXDP(link.XDPOptions{Program: e.objs.Flood, Interface: dev.Index, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: attach an emitter: %w", device, err), e.objs.Close())
	}
	return e, nil
}

// Close frees it.
func (e *Emitter) Close() error { return errors.Join(e.link.Close(), e.objs.Close()) }

// Send sends n datagrams of the first flows in rotation, beginning with the
// at-th. The calling thread does the receiver's work too, as far as that polls.
func (e *Emitter) Send(ctx context.Context, flows, at, n int) error {
	for ; n > 0; n -= emitterRun {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := e.run(flows, at%flows, min(n, emitterRun)); err != nil {
			return fmt.Errorf("send frames: %w", err)
		}
		at += emitterRun
	}
	return nil
}

func (e *Emitter) run(flows, at, n int) error {
	e.order.Flows, e.order.Next, e.order.Left = uint32(flows), uint32(at), uint32(n)
	if err := e.objs.Orders.Put(uint32(0), e.order); err != nil {
		return err
	}
	_, err := e.objs.Flood.Run(&ebpf.RunOptions{
		Data: e.order.Frame[:], Repeat: uint32(n), Flags: liveFrames, BatchSize: emitterBatch,
	})
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("this kernel runs no XDP programs on live frames (Linux 5.18 does): %w", err)
	}
	return err
}
