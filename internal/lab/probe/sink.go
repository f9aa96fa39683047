// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"imbang/internal/director"
	"imbang/internal/host"
)

// Sink drops what comes in by a device, counts it and keeps the first frames,
// for measurements: it costs less than any receiver would. Everything of it is
// to be called in the device's network namespace.
type Sink struct {
	objs   sinkObjects
	device int
	xdp    link.Link // nil where it takes socket buffers alone
	tcx    link.Link // nil for a classifier
}

// SinkHook is where a Sink takes the packets from the kernel.
type SinkHook string

const (
	SinkTC  SinkHook = "tc"  // tcx or clsact, as the director has them
	SinkXDP SinkHook = "xdp" // native to the driver, before there is a socket buffer; and what comes as one by tc
)

const sinkName = "imbang-sink"

// NewSink attaches one to a device, until it is closed or the device goes.
func NewSink(device string, hook SinkHook) (*Sink, error) {
	dev, err := ethernet(device)
	if err != nil {
		return nil, err
	}
	s := &Sink{device: dev.Index}
	if err := loadSinkObjects(&s.objs, nil); err != nil {
		return nil, director.ExplainLoad(err)
	}
	if err := s.attach(dev, hook); err != nil {
		return nil, errors.Join(fmt.Errorf("device %s: attach a sink: %w", device, err), s.objs.Close())
	}
	return s, nil
}

// attach attaches the classifier in any case: a director's own classifier sends
// by bpf_redirect_peer, past the XDP program at the other end of a veth device.
func (s *Sink) attach(dev *net.Interface, hook SinkHook) (err error) {
	if hook == SinkXDP {
		s.xdp, err = link.AttachXDP(link.XDPOptions{Program: s.objs.SinkXdp, Interface: dev.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
	}
	s.tcx, err = link.AttachTCX(link.TCXOptions{Program: s.objs.SinkTc, Interface: dev.Index, Attach: ebpf.AttachTCXIngress})
	if errors.Is(err, ebpf.ErrNotSupported) {
		s.tcx, err = nil, host.AddClassifier(sinkName, dev.Index, host.Ingress, s.objs.SinkTc.FD())
	}
	if err != nil && s.xdp != nil {
		err = errors.Join(err, s.xdp.Close())
	}
	return err
}

// Close detaches it.
func (s *Sink) Close() error { return errors.Join(s.detach(), s.objs.Close()) }

func (s *Sink) detach() (err error) {
	if s.xdp != nil {
		err = s.xdp.Close()
	}
	if s.tcx != nil {
		return errors.Join(err, s.tcx.Close())
	}
	all, failed := host.Classifiers(sinkName)
	err = errors.Join(err, failed)
	for _, c := range all {
		if c.Device == s.device {
			err = errors.Join(err, host.RemoveClassifier(c))
		}
	}
	return err
}

// Packets is how many came in, and how many of them were no IPv4.
func (s *Sink) Packets() (all, strange uint64, err error) {
	var each []sinkTally
	if err := s.objs.Total.Lookup(uint32(0), &each); err != nil {
		return 0, 0, fmt.Errorf("count what came in: %w", err)
	}
	for _, t := range each {
		all, strange = all+t.Packets, strange+t.Strange
	}
	return all, strange, nil
}

// To is how many came in for an IPv4 address, of which the last two bytes
// count.
func (s *Sink) To(address netip.Addr) (n uint64, err error) {
	b := address.As4()
	var each []uint64
	if err := s.objs.Arrived.Lookup(uint32(b[2])<<8|uint32(b[3]), &each); err != nil {
		return 0, fmt.Errorf("count what came in for %s: %w", address, err)
	}
	for _, c := range each {
		n += c
	}
	return n, nil
}

// Frames are the first that came in, at most as many as are kept.
func (s *Sink) Frames() (frames [][]byte, err error) {
	n, _, err := s.Packets()
	if err != nil {
		return nil, err
	}
	all := make([]sinkSample, s.objs.Samples.Size()/uint32(unsafe.Sizeof(sinkSample{})))
	if err := s.objs.Samples.Get(all); err != nil {
		return nil, fmt.Errorf("look at the frames: %w", err)
	}
	for _, f := range all[:min(n, uint64(len(all)))] {
		frames = append(frames, f.Frame[:])
	}
	return frames, nil
}
