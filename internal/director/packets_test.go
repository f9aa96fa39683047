// SPDX-License-Identifier: Apache-2.0

package director

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

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

// run runs a program once. The calling thread must be in the rig's namespace.
func run(p *ebpf.Program, context skBuff, frame []byte) (result, error) {
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: context}
	ret, err := p.Run(&o)
	return result{verdict(int32(ret)), o.DataOut}, err
}

// send puts a frame into a program as if it came in through its device.
func (r *rig) send(p *ebpf.Program, context skBuff, frame []byte) (v result) {
	r.Helper()
	dev := r.client
	if p == r.progs.LbServer {
		dev = r.server
	}
	context.IngressIfindex, context.Ifindex = uint32(dev), uint32(dev)
	r.must(r.ns.Do(func() (err error) {
		v, err = run(p, context, frame)
		return err
	}))
	return v
}

// fromClient sends a packet in through the clients' device.
func (r *rig) fromClient(p testenv.Packet) result {
	r.Helper()
	return r.send(r.progs.LbClient, skBuff{}, p.Frame())
}

// fromServer sends a packet in through the servers' device.
func (r *rig) fromServer(p testenv.Packet) result {
	r.Helper()
	return r.send(r.progs.LbServer, skBuff{}, p.Frame())
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
	context := skBuff{IngressIfindex: uint32(r.client), Ifindex: uint32(r.client)}
	r.must(r.ns.Do(func() error {
		for i := range n {
			if _, err := run(r.progs.LbClient, context, packet(i).Frame()); err != nil {
				return err
			}
		}
		return nil
	}))
}
