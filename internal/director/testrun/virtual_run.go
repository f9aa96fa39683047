// SPDX-License-Identifier: Apache-2.0

package testrun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
)

// Fate is what a program made of a packet (TC_ACT_* of linux/pkt_cls.h).
type Fate int32

// The verdicts of the data plane.
const (
	Passed    Fate = -1 // left to the kernel's stack
	Dropped   Fate = 2
	Forwarded Fate = 7 // or answered, as by an ICMP error
)

// runner puts frames into the two programs by BPF_PROG_TEST_RUN. A simulation
// does this millions of times, so it is the bare system call, with the same
// memory each time.
type runner struct {
	client, server testRun
}

// testRunAttr is union bpf_attr of linux/bpf.h, its test member.
type testRunAttr struct {
	program, result     uint32
	dataIn, dataOut     uint32 // sizes
	dataInAt, dataOutAt uint64
	repeat, duration    uint32
	contextIn, _        uint32
	contextInAt, _      uint64
	flags, cpu, batch   uint32
	_                   uint32
}

// testRun is one with what it points to.
type testRun struct {
	attr    testRunAttr
	context bpfobj.SkBuff
	xdp     xdpContext // instead, of a program of that type
	in, out [256]byte

	// call makes the system call: the bare one for one packet. Many take longer
	// than Go lets a thread run, which it would interrupt: then they have to
	// begin again.
	call func(trap, a, b, c uintptr) (r1, r2 uintptr, errno unix.Errno)
}

// init makes it ready; it must not be moved afterwards.
func (r *runner) init(client, server int, clientDevice, serverDevice int) {
	r.client.init(client, clientDevice)
	r.server.init(server, serverDevice)
}

func (t *testRun) init(program, device int) {
	t.context.IngressIfindex, t.context.Ifindex = uint32(device), uint32(device)
	t.begin(program)
	t.attr.contextIn = uint32(binary.Size(t.context))
	t.attr.contextInAt = address(&t.context)
}

// initXDP is init of a program of type XDP.
func (t *testRun) initXDP(program, device, length int) {
	t.xdp.IngressIfindex, t.xdp.DataEnd = uint32(device), uint32(length)
	t.begin(program)
	t.attr.contextIn = uint32(binary.Size(t.xdp))
	t.attr.contextInAt = address(&t.xdp)
}

func (t *testRun) begin(program int) {
	t.attr.program, t.attr.repeat, t.call = uint32(program), 1, unix.RawSyscall
	t.attr.dataInAt, t.attr.dataOutAt = address(&t.in), address(&t.out)
}

// xdpContext is struct xdp_md of linux/bpf.h.
type xdpContext struct {
	Data, DataEnd, DataMeta uint32
	IngressIfindex          uint32
	RxQueueIndex            uint32
	EgressIfindex           uint32
}

// address is where something lies that the kernel is to read or write.
func address[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// run puts in a frame. What leaves the director is in out, until the next run.
func (t *testRun) run(frame []byte) (Fate, error) {
	t.attr.dataIn = uint32(copy(t.in[:], frame))
	t.attr.dataOut = uint32(len(t.out))
	for {
		_, _, errno := t.call(unix.SYS_BPF, unix.BPF_PROG_TEST_RUN, uintptr(unsafe.Pointer(&t.attr)), unsafe.Sizeof(t.attr))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, fmt.Errorf("run a packet through the data plane: %w", errno)
		}
		return Fate(t.attr.result), nil
	}
}

// FromClient puts in a frame that a client sent.
func (v *Virtual) FromClient(frame []byte) (Fate, error) { return v.runner.client.run(frame) }

// FromServer puts in a frame that a server sent.
func (v *Virtual) FromServer(frame []byte) (Fate, error) { return v.runner.server.run(frame) }

// Output is the frame that the last one of a client became. It is valid until
// the next one.
func (v *Virtual) Output() []byte { return v.runner.client.out[:] }

// Chosen is where the last frame of a client, which was forwarded, went: the
// destination of IPv4, as a number. Only masquerading writes it there. It is
// refused if an ICMP error was sent instead.
func (v *Virtual) Chosen() (server uint32, refused bool, err error) {
	const ethernet, protocolAt, addressAt, icmp = 14, 9, 16, 1
	t := &v.runner.client
	if t.attr.dataOut < ethernet+20 {
		return 0, false, errors.New("the data plane returned no packet")
	}
	packet := t.out[ethernet:]
	return binary.BigEndian.Uint32(packet[addressAt:]), packet[protocolAt] == icmp, nil
}
