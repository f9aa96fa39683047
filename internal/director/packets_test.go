// SPDX-License-Identifier: Apache-2.0

package director

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

// verdict is what a program returned (TC_ACT_* of linux/pkt_cls.h; pass is
// TCX_NEXT).
type verdict int32

const (
	pass     verdict = -1
	drop     verdict = 2
	redirect verdict = 7
)

func (v verdict) String() string {
	switch v {
	case pass:
		return "pass"
	case drop:
		return "drop"
	case redirect:
		return "redirect"
	}
	return fmt.Sprintf("verdict %d", int32(v))
}

// result is what became of a packet.
type result struct {
	verdict
	frame []byte
}

// server is who a redirected packet goes to.
func (v result) server() (netip.AddrPort, error) {
	if v.verdict != redirect {
		return netip.AddrPort{}, fmt.Errorf("the verdict is %s", v.verdict)
	}
	if err := testenv.CheckSums(v.frame); err != nil {
		return netip.AddrPort{}, err
	}
	_, dst, err := testenv.Ends(v.frame)
	return dst, err
}

// checksumComplete is BPF_F_TEST_SKB_CHECKSUM_COMPLETE of linux/bpf.h.
const checksumComplete = 1 << 2

// summing reports whether the kernel knows that flag (Linux 6.13).
var summing = sync.OnceValue(func() bool {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return false
	}
	defer p.Close()
	_, err = p.Run(&ebpf.RunOptions{Data: testenv.UDP(client1, vip, "").Frame(), Flags: checksumComplete})
	return err == nil
})

var errSum = errors.New("the sum that the hardware made is no longer that of the bytes")

// run runs a program once. The calling thread must be in the rig's namespace.
func run(p *ebpf.Program, context skBuff, frame []byte, flags uint32) (result, error) {
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: context, Flags: flags}
	ret, err := p.Run(&o)
	if errors.Is(err, unix.EBADMSG) {
		err = errSum
	}
	return result{verdict(int32(ret)), o.DataOut}, err
}

// send puts a frame into a program as if it came in through its device.
func (r *rig) send(p *ebpf.Program, context skBuff, frame []byte) result {
	r.Helper()
	return r.sendFlagged(p, context, frame, 0)
}

func (r *rig) sendFlagged(p *ebpf.Program, context skBuff, frame []byte, flags uint32) (v result) {
	r.Helper()
	context = r.arriving(p, context)
	r.must(r.ns.Do(func() (err error) {
		v, err = run(p, context, frame, flags)
		return err
	}))
	return v
}

// arriving adds where a packet came in.
func (r *rig) arriving(p *ebpf.Program, context skBuff) skBuff {
	dev := r.client
	if p == r.progs.LbServer || context.CB[0] == expectReplies {
		dev = r.server
	}
	context.Ifindex = uint32(dev)
	if p != r.progs.LbLocal { // what comes from nowhere
		context.IngressIfindex = uint32(dev)
	}
	return context
}

// fromClient sends a packet in through the clients' device.
func (r *rig) fromClient(p testenv.Packet) result {
	r.Helper()
	return r.send(r.progs.LbClient, skBuff{}, p.Frame())
}

// fromServer sends a packet in through the servers' device, from a server's hardware address
// if that is the clients' device, too.
func (r *rig) fromServer(p testenv.Packet) result {
	r.Helper()
	if r.onOne {
		return r.send(r.progs.LbClient, skBuff{}, p.MACs(serverMAC, testenv.DirectorMAC).Frame())
	}
	return r.send(r.progs.LbServer, skBuff{}, p.Frame())
}

// expectReplies is EXPECT_REPLIES of bpf/packet.h.
const expectReplies = 1

// whole sends a frame in from a side, past the fast path.
func (r *rig) whole(fromServer bool, frame []byte) result {
	r.Helper()
	context := skBuff{}
	if fromServer {
		context.CB[0] = expectReplies
	}
	return r.send(r.progs.LbWhole, context, frame)
}

// syn sends a SYN, and says which server it goes to.
func (r *rig) syn(client, service string) netip.AddrPort {
	r.Helper()
	server, err := r.fromClient(testenv.TCP(client, service, "S")).server()
	if err != nil {
		r.Fatalf("SYN from %s to %s: %v", client, service, err)
	}
	return server
}

// establish completes the handshake of a new connection.
func (r *rig) establish(client, service string) netip.AddrPort {
	r.Helper()
	server := r.syn(client, service)
	r.fromServer(testenv.TCP(server.String(), client, "SA"))
	r.fromClient(testenv.TCP(client, service, "A"))
	return server
}

// nthClient is the i-th of many different clients.
func nthClient(i int) string {
	return fmt.Sprintf("10.10.%d.%d:%d", i>>8&0xff, i&0xff, 1024+i>>16)
}

// nthVIP is the i-th of many virtual addresses.
func nthVIP(i int) string { return fmt.Sprintf("10.20.%d.%d:80", 1+i>>8, i&0xff) }

// reasonsOf counts the packets not forwarded, by reason, while fn runs.
func (r *rig) reasonsOf(fn func()) map[string]uint64 {
	r.Helper()
	before, err := r.reasons()
	r.must(err)
	fn()
	after, err := r.reasons()
	r.must(err)
	grown := map[string]uint64{}
	for i, a := range after {
		if n := a.Packets - before[i].Packets; n != 0 {
			grown[a.Verdict+" "+a.Reason] = n
		}
	}
	return grown
}

// names writes servers as letters: A is server 0.
func names(servers []netip.AddrPort) string {
	var b []byte
	for _, s := range servers {
		i := slices.Index([]netip.Addr{serverAddr(0), serverAddr(1), serverAddr(2), serverAddr(3), serverAddr(4), serverAddr(5)}, s.Addr())
		b = append(b, "?ABCDEF"[i+1])
	}
	return string(b)
}

// flowOf is the connection table's key for a client's packet.
func flowOf(p testenv.Packet) bpfobj.LbFlow4 {
	frame := p.Frame()
	src, dst, err := testenv.Ends(frame)
	if err != nil {
		panic(err)
	}
	return bpfobj.LbFlow4{
		Src: toAddress(src.Addr()).Word[3], Dst: toAddress(dst.Addr()).Word[3],
		Sport: swapPort(src.Port()), Dport: swapPort(dst.Port()), Protocol: frame[14+9],
	}
}

// flood sends n packets from the clients' side, without looking at them.
func (r *rig) flood(n int, packet func(i int) testenv.Packet) {
	r.Helper()
	context := r.arriving(r.progs.LbClient, skBuff{})
	r.must(r.ns.Do(func() error {
		for i := range n {
			if _, err := run(r.progs.LbClient, context, packet(i).Frame(), 0); err != nil {
				return err
			}
		}
		return nil
	}))
}
