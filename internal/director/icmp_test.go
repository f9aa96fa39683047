// SPDX-License-Identifier: Apache-2.0

package director

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"imbang/internal/bpfobj"
	"imbang/internal/testenv"
)

const vip2 = "10.20.0.2:80" // a service without servers

// A packet that cannot go on is answered by an ICMP error to its sender, with
// the packet quoted as it came.
func TestICMPErrors(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.addService(tcpService(vip2, "rr"))
	r.syn(client1, vip)
	expired := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeTimeExceeded, layers.ICMPv4CodeTTLExceeded)
	unreachable := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodePort)
	tooBig := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded)
	syn, ack, back := testenv.TCP(client1, vip2, "S"), testenv.TCP(client1, vip, "A"), testenv.TCP(server0, client1, "A")
	for _, c := range []struct {
		name   string
		packet testenv.Packet
		server bool
		want   layers.ICMPv4TypeCode
		mtu    uint16
		reason string
	}{
		{"no server", syn, false, unreachable, 0, "refused no server"},
		{"no server, data of odd length", syn.Payload("odd"), false, unreachable, 0, "refused no server"},
		{"no server, long packet", syn.Payload(strings.Repeat("long", 300)), false, unreachable, 0, "refused no server"},
		{"no server, longest quote", syn.Payload(strings.Repeat("q", 548-44)), false, unreachable, 0, "refused no server"},
		{"no server, a byte more", syn.Payload(strings.Repeat("q", 548-43)), false, unreachable, 0, "refused no server"},
		{"no server, IP options", syn.Options(3), false, unreachable, 0, "refused no server"},
		{"TTL 1", ack.TTL(1), false, expired, 0, "refused ttl exceeded"},
		{"TTL 0", ack.TTL(0), false, expired, 0, "refused ttl exceeded"},
		{"TTL 1 of an answer", back.TTL(1), true, expired, 0, "refused ttl exceeded"},
		{"TTL 1 of a SYN", testenv.TCP("10.10.0.7:7", vip, "S").TTL(1), false, expired, 0, "refused ttl exceeded"},
		{"too big", ack.Payload(strings.Repeat("x", 1461)).DontFragment(), false, tooBig, 1500, "refused too big"},
	} {
		t.Run(c.name, func(t *testing.T) {
			send := r.fromClient
			if c.server {
				send = r.fromServer
			}
			// The limit of errors for a sender has a test of its own.
			r.must(deleteKeys(r.maps.Allowances, func(bpfobj.LbAddress, bpfobj.LbAllowance) bool { return true }))
			var got result
			reasons := r.reasonsOf(func() { got = send(c.packet) })
			if diff := cmp.Diff(map[string]uint64{c.reason: 1}, reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if got.verdict != redirect {
				t.Fatalf("%s, want redirect", got.verdict)
			}
			wantICMP(t, got.frame, c.packet.Frame(), c.want, c.mtu)
		})
	}
}

// wantICMP checks an error about a packet, all of it.
func wantICMP(t *testing.T, frame, about []byte, want layers.ICMPv4TypeCode, mtu uint16) {
	t.Helper()
	if err := testenv.CheckSums(frame); err != nil {
		t.Error(err)
	}
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	ip, isIP := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	icmp, isICMP := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	if !isIP || !isICMP {
		t.Fatalf("not an ICMP packet: %s", p)
	}
	if icmp.TypeCode != want || icmp.Id != 0 || icmp.Seq != mtu {
		t.Errorf("%s, %d, MTU %d; want %s, 0, MTU %d", icmp.TypeCode, icmp.Id, icmp.Seq, want, mtu)
	}
	if !bytes.Equal(frame[:12], append(about[6:12:12], about[0:6]...)) {
		t.Error("it does not go back the way it came")
	}
	if !ip.SrcIP.Equal(about[14+16:14+20]) || !ip.DstIP.Equal(about[14+12:14+16]) {
		t.Errorf("from %s to %s", ip.SrcIP, ip.DstIP)
	}
	if ip.TTL != 64 || ip.TOS != 0xc0 {
		t.Errorf("TTL %d, TOS %#x", ip.TTL, ip.TOS)
	}
	quote := about[14:min(len(about), 14+548)]
	if diff := cmp.Diff(quote, icmp.Payload); diff != "" {
		t.Errorf("the quote differs (-want +got):\n%s", diff)
	}
	if int(ip.Length) != 28+len(quote) || len(frame) != 14+int(ip.Length) {
		t.Errorf("length %d in a frame of %d for a quote of %d", ip.Length, len(frame), len(quote))
	}
}

// An offloaded checksum is still to be filled in, at its place behind the
// error's headers: when it is, the error's own checksum is right.
func TestICMPOfPendingChecksum(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip2, "rr"))
	frame := testenv.TCP(client1, vip2, "S").Payload("data").Frame()
	const check = 14 + 20 + 16 // of TCP
	whole := binary.BigEndian.Uint16(frame[check:])
	segment := frame[14+20:]
	pseudo := ^testenv.Sum(frame[14+12:14+20], []byte{0, 6, byte(len(segment) >> 8), byte(len(segment))})
	got := r.send(r.progs.LbClient, skBuff{}, altered(frame, check, pseudo))
	if got.verdict != redirect || len(got.frame) != len(frame)+28 {
		t.Fatalf("%s, %d bytes", got.verdict, len(got.frame))
	}
	if n := binary.BigEndian.Uint16(got.frame[28+check:]); n != pseudo {
		t.Errorf("what was to be filled in is %#x, was %#x", n, pseudo)
	}
	if err := testenv.CheckSums(altered(got.frame, 28+check, whole)); err != nil {
		t.Error(err)
	}
}

// Padding behind the packet is not quoted.
func TestICMPOfPaddedFrame(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip2, "rr"))
	frame := testenv.TCP(client1, vip2, "S").Frame()
	got := r.send(r.progs.LbClient, skBuff{}, append(bytes.Clone(frame), make([]byte, 20)...))
	wantICMP(t, got.frame, frame, layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodePort), 0)
}

// Too big, but the sender did not ask to be told: there is no fragmentation.
func TestTooBigWithoutDF(t *testing.T) {
	r := newRig(t, small)
	r.addService(tcpService(vip, "rr"), 1)
	r.syn(client1, vip)
	p := testenv.TCP(client1, vip, "A").Payload(strings.Repeat("x", 1461))
	got := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(p), p.Frame()) })
	if diff := cmp.Diff(map[string]uint64{"drop too big no df": 1}, got); diff != "" {
		t.Error(diff)
	}
	if n := binary.BigEndian.Uint16(p.Frame()[16:]); n != 1501 {
		t.Errorf("the packet has %d bytes", n)
	}
}

// A sender gets six errors at once and then one a second; path MTU discovery
// is not limited, nor is another sender.
func TestICMPRateLimit(t *testing.T) {
	r := newRig(t, small)
	r.must(r.AddService(tcpService(vip, "rr")))
	syn := testenv.TCP(client1, vip, "S")
	for i := range 6 {
		if got := r.fromClient(syn); got.verdict != redirect {
			t.Fatalf("refusal %d: %s", i+1, got.verdict)
		}
	}
	got := r.reasonsOf(func() { wantUntouched(t, drop, r.fromClient(syn), syn.Frame()) })
	if diff := cmp.Diff(map[string]uint64{"drop rate limit": 1}, got); diff != "" {
		t.Error(diff)
	}
	if got := r.fromClient(testenv.TCP("10.10.0.3:1234", vip, "S")); got.verdict != redirect {
		t.Errorf("another sender: %s", got.verdict)
	}
}
