// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

const (
	a4, b4 = "192.0.2.1:1000", "198.51.100.2:80"
	a6, b6 = "[2001:db8::1]:1000", "[2001:db8:1::2]:80"
)

// The example of RFC 1071, 3.
func TestSum(t *testing.T) {
	data, _ := hex.DecodeString("0001f203f4f5f6f7")
	if got, want := Sum(data), ^uint16(0xddf2); got != want {
		t.Errorf("Sum is %#x, want %#x", got, want)
	}
	if got := Sum(data[:2], data[2:]); got != ^uint16(0xddf2) {
		t.Errorf("Sum of two parts is %#x", got)
	}
}

// kinds are packets of every kind that can be described.
func kinds() map[string]Packet {
	all := map[string]Packet{}
	for family, ends := range map[string][2]string{"IPv4": {a4, b4}, "IPv6": {a6, b6}} {
		a, b := ends[0], ends[1]
		for name, p := range map[string]Packet{
			"SYN": TCP(a, b, "S"), "odd": TCP(a, b, "PA").Payload("odd"),
			"UDP": UDP(a, b, "hello").TOS(0x2b).TTL(1), "empty": UDP(a, b, ""),
			"no checksum": UDP(a, b, "hello").NoChecksum(), "SCTP": SCTP(a, b, SCTPInit).Payload("cookie"),
			"ping":       Ping(a, b),
			"error":      ICMP(b, a, 3, 1).Quoting(TCP(a, b, "A").Payload("x").Frame(), 1000),
			"cut error":  ICMP(b, a, 3, 1).Quoting(UDP(a, b, "x").Frame(), 28), // IPv6: within the header
			"SCTP error": ICMP(b, a, 3, 1).Quoting(SCTP(a, b, SCTPData).Payload("data").Frame(), 60),
		} {
			all[family+" "+name] = p
		}
	}
	all["IPv4 options"] = TCP(a4, b4, "A").Options(10)
	all["IPv4 fragment"] = UDP(a4, b4, "x").Fragment(0x2000)
	all["IPv6 extensions"] = TCP(a6, b6, "A").Extension(HopByHop).Extension(Routing).Extension(Destination).Payload("x")
	all["IPv6 atomic fragment"] = UDP(a6, b6, "x").Fragment(0)
	all["IPv6 fragment"] = UDP(a6, b6, "x").Extension(HopByHop).Fragment(0x2002)
	return all
}

func TestFramesAreRight(t *testing.T) {
	for name, p := range kinds() {
		t.Run(name, func(t *testing.T) {
			frame := p.Frame()
			if err := CheckSums(frame); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(frame, p.Frame()) {
				t.Error("a second frame differs")
			}
			judged(t, p, frame)
		})
	}
}

// judged compares a frame with what gopacket reads in it, which knows nothing
// of this package.
func judged(t *testing.T, p Packet, frame []byte) {
	t.Helper()
	got := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := got.ErrorLayer(); e != nil && got.TransportLayer() == nil && p.protocol != protoICMPv6 {
		t.Fatalf("not readable: %v", e.Error())
	}
	src, dst := p.src.Addr().String(), p.dst.Addr().String()
	flow := got.NetworkLayer().NetworkFlow()
	if flow.Src().String() != src || flow.Dst().String() != dst {
		t.Errorf("from %s to %s, want %s to %s", flow.Src(), flow.Dst(), src, dst)
	}
	transport := got.TransportLayer()
	if transport == nil {
		return // ICMP, fragments
	}
	ports := transport.TransportFlow()
	if ports.Src().String() != fmt.Sprint(p.src.Port()) || ports.Dst().String() != fmt.Sprint(p.dst.Port()) {
		t.Errorf("ports %s, %s", ports.Src(), ports.Dst())
	}
	switch l := transport.(type) {
	case *layers.UDP:
		_ = l.SetNetworkLayerForChecksum(got.NetworkLayer()) // fails for other layers than IP
		if l.Checksum == 0 {
			return
		}
	case *layers.TCP:
		_ = l.SetNetworkLayerForChecksum(got.NetworkLayer())
	}
	errs, result := got.VerifyChecksums()
	if errs != nil || len(result) != 0 {
		t.Errorf("gopacket finds wrong checksums: %v, %v", errs, result)
	}
}

func TestEnds(t *testing.T) {
	for _, p := range []Packet{TCP(a4, b4, "S"), UDP(a6, b6, ""), SCTP(a6, b6, 0).Extension(Destination)} {
		src, dst, err := Ends(p.Frame())
		if err != nil || src != p.src || dst != p.dst {
			t.Errorf("from %s to %s, %v", src, dst, err)
		}
	}
	if _, _, err := Ends(Ping(a4, b4).Frame()); err == nil {
		t.Error("a ping has ports")
	}
}

// Fragments are those of one packet: what they carry is the packet's.
func TestFragments(t *testing.T) {
	for name, p := range map[string]Packet{
		"IPv4": UDP(a4, b4, "0123456789abcdef").Options(1), "IPv6": UDP(a6, b6, "0123456789abcdef").Extension(HopByHop),
	} {
		t.Run(name, func(t *testing.T) {
			var carried []byte
			for i, frame := range p.Fragments(16) {
				if err := CheckSums(frame); err != nil {
					t.Errorf("fragment %d: %v", i, err)
				}
				v, err := dissect(frame)
				if err != nil || !v.fragment || v.later != (i > 0) || v.protocol != protoUDP {
					t.Errorf("fragment %d: %+v, %v", i, v, err)
				}
				carried = append(carried, v.segment()...)
			}
			if !bytes.Equal(carried, p.segment()) {
				t.Errorf("they carry %x, want %x", carried, p.segment())
			}
		})
	}
}
