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
	data  []byte // of a page
	link  link.Link
}

const (
	emitterBatch = 64      // frames before the receiver's turn: veth's queue has 256
	emitterRun   = 1 << 18 // datagrams of one system call at most

	liveFrames = 1 << 1 // BPF_F_TEST_XDP_LIVE_FRAMES of linux/bpf.h
)

// Emission is what an Emitter sends.
type Emission struct {
	Frame []byte // flow 0's, IPv4 and 60 bytes long
	// Targets are addresses from the frame's on: flow i goes to the address i modulo
	// Targets behind it. 0: 1.
	Targets int
	// ClientBits is the binary logarithm of the number of clients' addresses, at most 15:
	// flow i is of another client than the one before.
	ClientBits int
	Replies    bool // the frame is a server's; flow i goes to another client
}

// NewEmitter makes one.
func NewEmitter(device string, what Emission) (*Emitter, error) {
	dev, err := ethernet(device)
	if err != nil {
		return nil, err
	}
	e := &Emitter{order: floodOrder{Device: uint32(dev.Index), Targets: uint32(max(what.Targets, 1)),
		ClientBits: uint32(what.ClientBits)}}
	if what.Replies {
		e.order.Replies = 1
	}
	if len(what.Frame) != len(e.order.Frame) || what.ClientBits < 0 || what.ClientBits > 15 {
		return nil, fmt.Errorf("a frame of %d bytes, 2^%d clients: must be %d, and at most 2^15", len(what.Frame), what.ClientBits, len(e.order.Frame))
	}
	copy(e.order.Frame[:], what.Frame)
	e.Mix(0)
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

// Mix makes one frame of ten so long from now on, with zeros behind; 0: none.
func (e *Emitter) Mix(large int) {
	e.order.Large = uint32(large)
	e.data = make([]byte, max(large, len(e.order.Frame)))
	copy(e.data, e.order.Frame[:])
}

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
	if err := e.objs.CurrentOrder.Set(e.order); err != nil {
		return err
	}
	_, err := e.objs.Flood.Run(&ebpf.RunOptions{
		Data: e.data, Repeat: uint32(n), Flags: liveFrames, BatchSize: emitterBatch,
	})
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("this kernel runs no XDP programs on live frames (Linux 5.18 does): %w", err)
	}
	return err
}
