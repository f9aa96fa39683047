// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"imbang/internal/host"
	"imbang/internal/testenv"
)

// Every packet is counted by its destination, the first are kept, none goes
// on, and afterwards all do.
func TestSink(t *testing.T) {
	for _, hook := range []SinkHook{SinkTC, SinkXDP} {
		t.Run(string(hook), func(t *testing.T) {
			r := &rig{t, testenv.Namespace(t, "sink")}
			r.must(r.ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
			r.must(host.Connect(host.End{NS: r.ns, Name: "a", MAC: routerMAC}, host.End{NS: r.ns, Name: "b", MAC: clientDevMAC}, host.LinkOptions{}))
			r.must(r.ns.AddAddresses("b", netip.MustParsePrefix("10.10.0.1/24")))
			var s *Sink
			r.must(r.ns.Do(func() (err error) { s, err = NewSink("b", hook); return err }))
			far := r.wire("a")
			packet := testenv.UDP(client1, "172.16.3.10:80", "of eighteen bytes.").MACs(routerMAC, clientDevMAC)
			for range 70 {
				far.send(packet)
			}
			far.send(packet.To("172.16.3.11:80"))
			far.send(testenv.UDP("[fd00::1]:1", "[fd00::2]:2", "IPv6").MACs(routerMAC, clientDevMAC))
			r.atLast(time.Minute, "every packet is counted", func() bool {
				all, strange, err := s.Packets()
				r.must(err)
				return all == 72 && strange == 1
			})
			for address, want := range map[string]uint64{"172.16.3.10": 70, "172.16.3.11": 1, "172.16.3.12": 0} {
				if n, err := s.To(netip.MustParseAddr(address)); err != nil || n != want {
					t.Errorf("%d packets to %s, want %d; %v", n, address, want, err)
				}
			}
			frames, err := s.Frames()
			if err != nil || len(frames) != 64 || !bytes.Equal(frames[63], packet.Frame()) {
				t.Errorf("%d frames, %v: %x", len(frames), err, frames)
			}
			var own net.PacketConn
			r.must(r.ns.Do(func() (err error) { own, err = net.ListenPacket("udp4", "10.10.0.1:9"); return err }))
			defer own.Close()
			comes := func(limit time.Duration) bool {
				far.send(testenv.UDP("10.10.0.9:9", "10.10.0.1:9", "data").MACs(routerMAC, clientDevMAC))
				r.must(own.SetReadDeadline(time.Now().Add(limit)))
				_, _, err := own.ReadFrom(make([]byte, 100))
				return err == nil
			}
			if comes(200 * time.Millisecond) {
				t.Error("a packet came through")
			}
			r.must(r.ns.Do(s.Close))
			r.atLast(time.Minute, "packets come through again", func() bool { return comes(200 * time.Millisecond) })
		})
	}
}

// A socket buffer that comes past the XDP program, by bpf_redirect_peer, is
// counted with the frames.
func TestSinkPastXDP(t *testing.T) {
	r := &rig{t, testenv.Namespace(t, "past")}
	servers := testenv.Namespace(t, "sink")
	for _, ns := range []*host.Namespace{r.ns, servers} {
		r.must(ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
	}
	r.must(host.Connect(host.End{NS: r.ns, Name: "wire", MAC: routerMAC}, host.End{NS: r.ns, Name: "client", MAC: clientDevMAC}, host.LinkOptions{}),
		host.Connect(host.End{NS: r.ns, Name: "server", MAC: clientDevMAC}, host.End{NS: servers, Name: "sink", MAC: routerMAC}, host.LinkOptions{}))
	var s *Sink
	r.must(servers.Do(func() (err error) { s, err = NewSink("sink", SinkXDP); return err }))
	t.Cleanup(func() { r.must(servers.Do(s.Close)) })
	from, err := r.ns.LinkIndex("client")
	r.must(err)
	to, err := r.ns.LinkIndex("server")
	r.must(err)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(to)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirectPeer.Call(), asm.Return(),
	}})
	r.must(err)
	t.Cleanup(func() { r.must(p.Close()) })
	r.must(r.ns.Do(func() error { return host.AddClassifier("past", from, host.Ingress, p.FD()) }))
	for name, w := range map[string]wire{"past XDP": r.wire("wire"), "by XDP": r.wire("server")} {
		before, _, err := s.Packets()
		r.must(err)
		for range 10 {
			w.send(testenv.UDP(client1, "172.16.3.10:80", "of eighteen bytes.").MACs(routerMAC, clientDevMAC))
		}
		r.atLast(time.Minute, name+", every packet is counted once", func() bool {
			all, _, err := s.Packets()
			r.must(err)
			return all == before+10
		})
	}
	if n, err := s.To(netip.MustParseAddr("172.16.3.10")); err != nil || n != 20 {
		t.Errorf("%d packets, want 20; %v", n, err)
	}
}
