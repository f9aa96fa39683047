// SPDX-License-Identifier: Apache-2.0

package vrrp

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// golden are payloads as keepalived 2.2.7 sent them over a veth pair.
var golden = []struct {
	name    string
	bytes   string
	packet  Packet
	unicast bool
	want    Advertisement
}{
	{
		"IPv4", "31336401000a75690a0000c8",
		packet("10.0.0.1", "224.0.0.18"), false,
		advertisement(51, 100, 100*time.Millisecond, "10.0.0.200"),
	},
	{
		"two addresses", "31336402000a6a9b0a0000c80a0000c9",
		packet("10.0.0.1", "224.0.0.18"), false,
		advertisement(51, 100, 100*time.Millisecond, "10.0.0.200", "10.0.0.201"),
	},
	{
		"resigning", "31330002000ace9b0a0000c80a0000c9",
		packet("10.0.0.1", "224.0.0.18"), false,
		advertisement(51, 0, 100*time.Millisecond, "10.0.0.200", "10.0.0.201"),
	},
	{
		"unicast", "3135fe010032b14c0a0000cb",
		packet("10.0.0.1", "10.0.0.2"), true,
		advertisement(53, 254, 500*time.Millisecond, "10.0.0.203"),
	},
	{
		"unicast, resigning", "313500010032af4d0a0000cb",
		packet("10.0.0.1", "10.0.0.2"), true,
		advertisement(53, 0, 500*time.Millisecond, "10.0.0.203"),
	},
	{
		"IPv6", "3134c802006494a8fe800000000000000000000000000200fd000000000000000000000000000200",
		packet("fe80::c8c5:83ff:fe2d:2919", "ff02::12"), false,
		advertisement(52, 200, time.Second, "fe80::200", "fd00::200"),
	},
	{
		"IPv6, resigning", "3134000200645ca9fe800000000000000000000000000200fd000000000000000000000000000200",
		packet("fe80::c8c5:83ff:fe2d:2919", "ff02::12"), false,
		advertisement(52, 0, time.Second, "fe80::200", "fd00::200"),
	},
}

func packet(source, destination string) Packet {
	return Packet{netip.MustParseAddr(source), netip.MustParseAddr(destination), HopLimit}
}

func advertisement(id, priority uint8, interval time.Duration, addresses ...string) Advertisement {
	a := Advertisement{ID: id, Priority: priority, Interval: interval}
	for _, s := range addresses {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(s))
	}
	return a
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		b := unhex(t, g.bytes)
		var got Advertisement
		if r := Parse(b, g.packet, g.want.ID, g.unicast, &got); r != Accepted {
			t.Errorf("%s: refused: %v", g.name, r)
		} else if !reflect.DeepEqual(got, g.want) {
			t.Errorf("%s: %+v, want %+v", g.name, got, g.want)
		}
		again, err := g.want.Append([]byte("before"), g.packet.Source, g.packet.Destination)
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
		} else if want := append([]byte("before"), b...); !bytes.Equal(again, want) {
			t.Errorf("%s: encoded as %x, want %x", g.name, again, want)
		}
	}
}

// The checksum of RFC 9568 over IPv4 covers only the message: for this one it was added
// up by hand. 3133 + 6401 + 000a + 0a00 + 00c8 = a006, whose complement is 5ff9.
func TestPlainChecksum(t *testing.T) {
	a := advertisement(51, 100, 100*time.Millisecond, "10.0.0.200")
	a.Plain = true
	p := packet("10.0.0.1", "224.0.0.18")
	b, err := a.Append(nil, p.Source, p.Destination)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != "31336401000a5ff90a0000c8" {
		t.Errorf("encoded as %s", got)
	}
	var got Advertisement
	if r := Parse(b, p, 51, false, &got); r != Accepted || !got.Plain {
		t.Errorf("parsed: %v, plain %v", r, got.Plain)
	}
	// IPv6 has no such form.
	six := advertisement(52, 200, time.Second, "fe80::200", "fd00::200")
	six.Plain = true
	p = packet("fe80::c8c5:83ff:fe2d:2919", "ff02::12")
	if b, err = six.Append(nil, p.Source, p.Destination); err != nil || hex.EncodeToString(b) != golden[5].bytes {
		t.Errorf("IPv6: %x, %v", b, err)
	}
}

func TestParseRefuses(t *testing.T) {
	four, six := golden[0], golden[5]
	// resum makes the checksum right again, so that the check behind it is reached.
	resum := func(b []byte, p Packet) []byte {
		b[6], b[7] = 0, 0
		sum := checksum(pseudoSum(p.Source, p.Destination, len(b)), b)
		b[6], b[7] = byte(sum>>8), byte(sum)
		return b
	}
	for _, c := range []struct {
		want Reason
		from int
		edit func(b []byte, p *Packet) []byte
		id   uint8
		uni  bool
	}{
		{want: Accepted, edit: func(b []byte, _ *Packet) []byte { return b }},
		{want: ReasonTruncated, edit: func(b []byte, _ *Packet) []byte { return b[:7] }},
		{want: ReasonTruncated, edit: func(b []byte, _ *Packet) []byte { return b[:11] }},
		{want: ReasonTruncated, edit: func(b []byte, _ *Packet) []byte { return nil }},
		{want: ReasonVersion, edit: func(b []byte, p *Packet) []byte { b[0] = 0x21; return resum(b, *p) }},
		{want: ReasonType, edit: func(b []byte, p *Packet) []byte { b[0] = 0x32; return resum(b, *p) }},
		{want: ReasonRouter, id: 50, edit: func(b []byte, _ *Packet) []byte { return b }},
		{want: ReasonHopLimit, edit: func(b []byte, p *Packet) []byte { p.HopLimit = 254; return b }},
		{want: ReasonDestination, uni: true, edit: func(b []byte, _ *Packet) []byte { return b }},
		{want: ReasonDestination, edit: func(b []byte, p *Packet) []byte {
			p.Destination = netip.MustParseAddr("10.0.0.2")
			return resum(b, *p)
		}},
		{want: ReasonDestination, edit: func(b []byte, p *Packet) []byte { p.Destination = Group6; return b }},
		{want: ReasonCount, edit: func(b []byte, p *Packet) []byte { b[3] = 0; return resum(b[:8], *p) }},
		{want: ReasonLength, edit: func(b []byte, p *Packet) []byte { return resum(append(b, 0), *p) }},
		{want: ReasonTruncated, edit: func(b []byte, p *Packet) []byte { b[3] = 2; return resum(b, *p) }},
		{want: ReasonChecksum, edit: func(b []byte, _ *Packet) []byte { b[6] ^= 1; return b }},
		{want: ReasonChecksum, edit: func(b []byte, p *Packet) []byte { p.Source = netip.MustParseAddr("10.0.0.7"); return b }},
		{want: ReasonInterval, edit: func(b []byte, p *Packet) []byte { b[4], b[5] = 0xf0, 0; return resum(b, *p) }},
		{want: Accepted, edit: func(b []byte, p *Packet) []byte { b[4] |= 0xf0; return resum(b, *p) }},
		{want: ReasonAddress, edit: func(b []byte, p *Packet) []byte { copy(b[8:], []byte{0, 0, 0, 0}); return resum(b, *p) }},
		{want: ReasonAddress, edit: func(b []byte, p *Packet) []byte { b[8] = 224; return resum(b, *p) }},
		{want: Accepted, from: 5, edit: func(b []byte, _ *Packet) []byte { return b }},
		{want: ReasonChecksum, from: 5, edit: func(b []byte, _ *Packet) []byte { // IPv6 without the pseudo header
			b[6], b[7] = 0, 0
			sum := checksum(0, b)
			b[6], b[7] = byte(sum>>8), byte(sum)
			return b
		}},
		{want: ReasonDestination, from: 5, edit: func(b []byte, p *Packet) []byte { p.Destination = Group4; return b }},
		{want: ReasonAddress, from: 5, edit: func(b []byte, p *Packet) []byte { b[8] = 0xff; return resum(b, *p) }},
	} {
		g := four
		if c.from == 5 {
			g = six
		}
		id, p := g.want.ID, g.packet
		if c.id != 0 {
			id = c.id
		}
		b := c.edit(unhex(t, g.bytes), &p)
		var a Advertisement
		if got := Parse(b, p, id, c.uni, &a); got != c.want {
			t.Errorf("%x of %+v: %v, want %v", b, p, got, c.want)
		}
	}
}

func TestParseHopLimitOfUnicast(t *testing.T) {
	g := golden[3]
	p := g.packet
	p.HopLimit = 62
	var a Advertisement
	if r := Parse(unhex(t, g.bytes), p, g.want.ID, true, &a); r != Accepted {
		t.Errorf("refused: %v", r)
	}
}

func TestParseReusesAddresses(t *testing.T) {
	b := unhex(t, golden[1].bytes)
	var a Advertisement
	if r := Parse(b, golden[1].packet, 51, false, &a); r != Accepted {
		t.Fatal(r)
	}
	if n := testing.AllocsPerRun(100, func() { Parse(b, golden[1].packet, 51, false, &a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendRefuses(t *testing.T) {
	many := advertisement(1, 1, time.Second)
	for range MaxAddresses4 + 1 {
		many.Addresses = append(many.Addresses, netip.MustParseAddr("10.0.0.1"))
	}
	for _, c := range []struct {
		a    Advertisement
		from string
		want string
	}{
		{advertisement(1, 1, 9*time.Millisecond, "10.0.0.9"), "10.0.0.1", "interval"},
		{advertisement(1, 1, 15*time.Millisecond, "10.0.0.9"), "10.0.0.1", "interval"},
		{advertisement(1, 1, 41*time.Second, "10.0.0.9"), "10.0.0.1", "interval"},
		{advertisement(1, 1, time.Second), "10.0.0.1", "0 addresses"},
		{many, "10.0.0.1", "256 addresses"},
		{advertisement(1, 1, time.Second, "fd00::1"), "10.0.0.1", "fd00::1"},
		{advertisement(1, 1, time.Second, "0.0.0.0"), "10.0.0.1", "0.0.0.0"},
		{advertisement(1, 1, time.Second, "10.0.0.9"), "fe80::1", "two families"},
	} {
		if b, err := c.a.Append(nil, netip.MustParseAddr(c.from), Group4); err == nil || !strings.Contains(err.Error(), c.want) || len(b) > 0 {
			t.Errorf("%+v: %x, %v, want an error with %q", c.a, b, err, c.want)
		}
	}
	a := advertisement(1, 1, MaxInterval, "10.0.0.9")
	if _, err := a.Append(nil, netip.MustParseAddr("10.0.0.1"), Group4); err != nil {
		t.Error(err)
	}
}

func TestReasonNames(t *testing.T) {
	names := []string{Accepted.String()}
	for _, r := range Reasons() {
		names = append(names, r.String())
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != int(reasons) || slices.Contains(names, "") || Reason(200).String() != "unknown reason" {
		t.Errorf("names: %q", names)
	}
}

// What is accepted can be encoded, to the same bytes but for the reserved bits.
func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(unhex(f, g.bytes), g.packet.Source.Is4(), g.unicast, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, is4, unicast, resum bool) {
		p := packet("10.0.0.1", "224.0.0.18")
		if unicast {
			p = packet("10.0.0.1", "10.0.0.2")
		}
		if !is4 {
			p = packet("fe80::c8c5:83ff:fe2d:2919", "ff02::12")
			if unicast {
				p = packet("fd00::1", "fd00::2")
			}
		}
		b = slices.Clone(b)
		if resum && len(b) >= headerSize { // or no random message passes the checksum
			b[6], b[7] = 0, 0
			sum := checksum(pseudoSum(p.Source, p.Destination, len(b)), b)
			b[6], b[7] = byte(sum>>8), byte(sum)
		}
		id := uint8(51)
		if len(b) > 1 {
			id = b[1]
		}
		before := slices.Clone(b)
		var a Advertisement
		r := Parse(b, p, id, unicast, &a)
		if !bytes.Equal(b, before) {
			t.Fatal("the packet was changed")
		}
		if r != Accepted {
			if r >= reasons {
				t.Fatalf("reason %d", r)
			}
			return
		}
		if !is4 && len(a.Addresses) > MaxAddresses6 {
			return // accepted by jumbo frames only
		}
		again, err := a.Append(nil, p.Source, p.Destination)
		if err != nil {
			t.Fatalf("%+v cannot be encoded: %v", a, err)
		}
		if b[4]&0xf0 == 0 && !bytes.Equal(again, b) && !(b[6] == 0xff && b[7] == 0xff) {
			t.Fatalf("%x was encoded as %x", b, again)
		}
		var second Advertisement
		if r := Parse(again, p, id, unicast, &second); r != Accepted || !reflect.DeepEqual(a, second) {
			t.Fatalf("%v: %+v, %+v", r, a, second)
		}
	})
}
